"""The committed code is what the protocol's files say."""

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in (folder / "forge").rglob("*") if path.suffix in {".py", ".pyi"})
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in files}


def test_generated_code_is_up_to_date(tmp_path: Path):
    subprocess.run([sys.executable, PACKAGE / "generate.py", "--out", tmp_path], check=True)
    assert contents(PACKAGE / "src") == contents(tmp_path), "run generate.py and commit what changed"
