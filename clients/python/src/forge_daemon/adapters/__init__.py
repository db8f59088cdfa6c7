"""Agents as they are, of the frameworks that people use: a module for each, behind an extra of the same name."""

import re
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

__all__ = ["expects", "needs"]


def needs(adapter: str, distribution: str, minimum: str, below: str, extra: str) -> None:
    """Raises ImportError, in one line that says what to do, unless a version in this range is installed."""
    wanted, remedy = f"{distribution}>={minimum},<{below}", f"pip install 'forge-daemon[{extra}]'"
    try:
        found = version(distribution)
    except PackageNotFoundError:
        raise ImportError(f"{adapter} needs {wanted}: {remedy}") from None
    if not tuple(_numbers(minimum)) <= tuple(_numbers(found)) < tuple(_numbers(below)):
        raise ImportError(f"{adapter} needs {wanted}, and {found} is installed: {remedy}")


def expects(adapter: str, distribution: str, minimum: str, below: str, tried: str, holds: Callable[[], bool]) -> None:
    """Raises ImportError, in one line, unless what a framework has no public name for is as the adapter knows it.

    `tried` is the version that the tests run with.
    """
    try:
        if holds():
            return
    except Exception:  # Whatever it is, it is not what is known.
        pass
    wanted = f"{distribution}>={minimum},<{below} that runs tools as {tried} does"
    found = version(distribution)
    raise ImportError(f"{adapter} needs {wanted}, and {found} does not: pip install '{distribution}=={tried}'")


def _numbers(text: str) -> Iterator[int]:
    """The numbers of a release, without what marks one before it."""
    release = re.match(r"[\d.]*", text.removeprefix("v"))
    return (int(number) for number in (release[0] if release else "").split(".") if number)
