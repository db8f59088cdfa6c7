#!/usr/bin/env python3
"""Generates the Python code of the protocol from ../../proto into src/forge_daemon/proto. Needs the extra `dev`.

The result is committed, so that an agent can be written, and the protocol read, without any generator. A test runs
this into another folder and compares.

protoc names modules after the packages of the protocol, such as `forge.agent.v1`. Other distributions own a package
`forge`, so the code moves into ours, and its imports with it. The names on the wire stay what they are.
"""

import argparse
import re
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

from grpc_tools import protoc

HERE = Path(__file__).parent
PROTO = HERE / "../../proto"
PACKAGES = ("forge/agent/v1", "forge/attach/v1")
PACKAGE = "forge_daemon.proto"


def generate(out: Path) -> None:
    """Writes messages with their type stubs for every file, and services for those that define one."""
    files = sorted(file for package in PACKAGES for file in (PROTO / package).glob("*.proto"))
    services = [file for file in files if "\nservice " in file.read_text("utf-8")]
    include = resources.files("grpc_tools") / "_proto"
    with TemporaryDirectory() as made:
        for options, inputs in [
            ([f"--python_out={made}", f"--pyi_out={made}"], files),
            ([f"--grpc_python_out={made}"], services),
        ]:
            arguments = ["protoc", f"-I{PROTO}", f"-I{include}", *options, *map(str, inputs)]
            if protoc.main(arguments) != 0:
                raise SystemExit("protoc failed")
        for package in PACKAGES:
            for file in sorted(Path(made, package).iterdir()):
                text = re.sub(r"from forge\.\w+\.v1 import", f"from {PACKAGE} import", file.read_text("utf-8"))
                (out / file.name).write_text(text, "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = HERE / "src" / PACKAGE.replace(".", "/")
    parser.add_argument("--out", type=Path, default=default, help="folder for the result (default: the package's own)")
    generate(parser.parse_args().out)
