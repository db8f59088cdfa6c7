#!/usr/bin/env python3
"""Generates the Python code of the protocol from ../../proto into src/forge. Needs the extra `dev`.

The result is committed, so that an agent can be written, and the protocol read, without any generator. A test runs
this into another folder and compares.
"""

import argparse
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).parent
PROTO = HERE / "../../proto"


def generate(out: Path) -> None:
    """Writes messages with their type stubs for every file, and services for those that define one."""
    files = sorted((PROTO / "forge/agent/v1").glob("*.proto"))
    services = [file for file in files if "\nservice " in file.read_text("utf-8")]
    include = resources.files("grpc_tools") / "_proto"
    for options, inputs in [
        ([f"--python_out={out}", f"--pyi_out={out}"], files),
        ([f"--grpc_python_out={out}"], services),
    ]:
        arguments = ["protoc", f"-I{PROTO}", f"-I{include}", *options, *map(str, inputs)]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc failed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "src", help="folder for the result (default: src)")
    generate(parser.parse_args().out)
