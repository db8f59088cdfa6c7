"""What the README shows is what is there."""

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def test_the_smallest_agent_is_shown_as_it_is():
    blocks = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text("utf-8"), re.S)
    smallest = next(block for block in blocks if "class Parrot" in block)
    assert smallest in (PACKAGE / "samples/minimal.py").read_text("utf-8")
