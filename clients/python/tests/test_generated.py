"""The committed code is what the protocol's files say."""

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in folder.glob("*_pb2*") if path.suffix in {".py", ".pyi"}}


def test_generated_code_is_up_to_date(tmp_path: Path):
    subprocess.run([sys.executable, PACKAGE / "generate.py", "--out", tmp_path], check=True)
    assert len(contents(tmp_path)) == 24
    assert contents(PACKAGE / "src/forge_daemon/proto") == contents(tmp_path), "run generate.py and commit what changed"
