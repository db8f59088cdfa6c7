"""What pytest loads by itself: makes tests of the cases of suites that a test file names with `forge_run`."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

from forge_daemon.testing import CannotRun, CaseFailed, ForgeRun

__all__ = ["CaseItem", "SuiteCollector"]


def pytest_pycollect_makeitem(collector: "pytest.Module | pytest.Class", name: str, obj: object) -> Any:
    """A run at the top of a test file is a group of tests, whatever its name is."""
    return SuiteCollector.from_parent(collector, name=name, run=obj) if isinstance(obj, ForgeRun) else None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tells each run which of its cases are selected."""
    for item in session.items:
        if isinstance(item, CaseItem) and item.case_count is not None:
            item.run.selected = set()
    for item in session.items:
        if isinstance(item, CaseItem) and item.run.selected is not None:
            item.run.selected.add(item.case_id)
    for item in session.items:
        if isinstance(item, CaseItem) and item.run.selected is not None and len(item.run.selected) == item.case_count:
            item.run.selected = None


class SuiteCollector(pytest.Collector):
    """A suite."""

    def __init__(self, *, run: ForgeRun, **more: Any) -> None:
        super().__init__(**more)
        self.run = run

    def collect(self) -> "Iterable[CaseItem]":
        """Its cases, as forgectl lists them."""
        try:
            cases = self.run.cases()
        except CannotRun as error:
            raise self.CollectError(f"{self.run.suite}: {error}") from None
        if not cases:
            raise self.CollectError(f"{self.run.suite}: there is no case to run")
        for case in cases:
            yield CaseItem.from_parent(self, name=case["id"], run=self.run, case=case, case_count=len(cases))


class CaseItem(pytest.Item):
    """A case."""

    def __init__(self, *, run: ForgeRun, case: dict[str, Any], case_count: int, **more: Any) -> None:
        super().__init__(**more)
        self.run = run
        self.case_id = str(case["id"])
        self.case_count = case_count
        if case.get("skip"):
            self.add_marker(pytest.mark.skip(reason="the suite skips it"))
        self.add_marker("forge")

    def runtest(self) -> None:
        """Passes if the case has; the suite runs before the first one."""
        self.run.check(self.case_id)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """The reason alone: no line of Python has to do with it."""
        if isinstance(excinfo.value, (CaseFailed, CannotRun)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> "tuple[os.PathLike[str] | str, int | None, str]":
        """Where the case stands."""
        return self.run.folder / self.run.suite, 0, f"{self.run.suite} {self.case_id}"


def pytest_configure(config: pytest.Config) -> None:
    """Makes `-m forge` known."""
    config.addinivalue_line("markers", "forge: a case of a suite, run by forgectl")
