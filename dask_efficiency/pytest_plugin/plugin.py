"""Hooks and the fixture `efficiency` of pytest: nothing is measured, nor imported, until a test asks for it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dask_efficiency.pytest_plugin.limits import EfficiencyLimits
    from dask_efficiency.pytest_plugin.measured import MeasuredTests
    from dask_efficiency.report.model import EfficiencyReport

MARKER = (
    "efficiency(max_seconds=, min_efficiency=, max_memory=, no=[]): report on this test's cluster by dask-efficiency, "
    "and fail beyond these limits"
)
#: Attribute of a test's report with what it tells the summary, which travels from the processes of pytest-xdist; a
#: property would be written to JUnit's XML as well.
_ATTRIBUTE = "dask_efficiency"
_TOLD = pytest.StashKey[dict[str, Any]]()
#: Tests in the summary, the longest first; and characters of a file's name.
_SHOWN, _LONGEST = 10, 150

_measured: MeasuredTests | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, which are off by default."""
    group = parser.getgroup("dask-efficiency")
    saved = "Save the reports of tests with the marker or the fixture `efficiency` in this folder, by node id."
    group.addoption("--dask-efficiency", metavar="FOLDER", help=saved)
    compared = "Compare them with those of this folder, and of the folders in it."
    group.addoption("--dask-efficiency-baseline", metavar="FOLDER", help=compared)


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the marker, and find folders before a test goes to another one."""
    config.addinivalue_line("markers", MARKER)
    if "://" in (config.getoption("dask_efficiency_baseline") or ""):
        raise pytest.UsageError("--dask-efficiency-baseline is a URL; expected a local folder")
    for name in ("dask_efficiency", "dask_efficiency_baseline"):
        if (folder := config.getoption(name)) is not None and "://" not in folder:
            setattr(config.option, name, os.path.join(config.invocation_params.dir, folder))


@pytest.fixture
def efficiency(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """:class:`~dask_efficiency.efficiency_report` with the name of the test, for a block in it."""
    from dask_efficiency.report.efficiency_report import efficiency_report

    return partial(efficiency_report, name=request.node.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Measure a test that is marked, or that uses the fixture; judge it if it passed."""
    marked = item.get_closest_marker("efficiency") is not None
    if not marked and "efficiency" not in getattr(item, "fixturenames", ()):
        return (yield)
    try:
        limits = _limits(item)
    except ValueError as error:
        pytest.fail(str(error), pytrace=False)
    measured = _the_measured()
    measured.begin(item.nodeid)
    try:
        result = yield
    except BaseException as error:
        _ended_by(error, item, measured)
        raise
    if failures := getattr(item, "_excinfo", None):  # pytest keeps what a unittest.TestCase raised, and raises nothing
        _ended_by(failures[0].value, item, measured)
        return result
    reports, notes = measured.end()
    _tell(item, reports, notes)
    _judge(reports, limits)
    return result


def _limits(item: pytest.Item) -> EfficiencyLimits:
    """Limits of all markers of a test, its own before those of its class and module; ValueError for what is none."""
    from dask_efficiency.pytest_plugin.limits import EfficiencyLimits

    given: dict[str, Any] = {}
    for marker in item.iter_markers("efficiency"):
        if marker.args:
            raise ValueError(f"efficiency({marker.args[0]!r:.80}): expected limits by name, such as max_seconds=3")
        given = {**marker.kwargs, **given}
    return EfficiencyLimits.of(given)


def _ended_by(error: BaseException, item: pytest.Item, measured: MeasuredTests) -> None:
    """Tell of a test that failed; nothing of one that was skipped."""
    from dask_efficiency.accounts.cluster.failures import error_text

    ended = measured.end(error_text(error))
    if not isinstance(error, pytest.skip.Exception):
        _tell(item, *ended)


def _the_measured() -> MeasuredTests:
    global _measured
    if _measured is None:
        from dask_efficiency.pytest_plugin.measured import MeasuredTests

        _measured = MeasuredTests()
    return _measured


def _judge(reports: list[EfficiencyReport], limits: EfficiencyLimits) -> None:
    """Fail a test beyond its limits, with the first finding of its report as the message."""
    for report in reports:
        if broken := list(limits.broken(report)):
            first = [one.in_a_line for one in report.findings[:1]]
            pytest.fail("\n".join((*first, *(f"beyond its limits: {clause}" for clause in broken))), pytrace=False)


def _tell(item: pytest.Item, reports: list[EfficiencyReport], notes: list[str]) -> None:
    """Save the reports of a test, and keep what the summary says of it."""
    told: dict[str, Any] = {"node": item.nodeid, "seconds": 0.0, "lines": [], "notes": list(notes)}
    folder, baseline = (item.config.getoption(name) for name in ("dask_efficiency", "dask_efficiency_baseline"))
    for number, report in enumerate(reports, 1):
        told["seconds"] = max(told["seconds"], report.wall_clock_seconds)
        told["lines"].append(report.headline)
        name = file_name(item.nodeid, number)
        try:
            if folder is not None:
                if "://" not in folder:
                    os.makedirs(folder, exist_ok=True)
                report.save(os.path.join(folder, name))
            if baseline is not None and not report.ended_by and (line := _compared(baseline, report, name, folder)):
                told["lines"].append(line)
        except (OSError, ValueError, ImportError) as error:  # ImportError of a URL whose package is missing
            told["notes"].append(str(error))
    item.stash[_TOLD] = told


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Give what a test told to the report of its call."""
    report = yield
    if call.when == "call" and _TOLD in item.stash:
        setattr(report, _ATTRIBUTE, item.stash[_TOLD])
    return report


def file_name(node: str, number: int = 1) -> str:
    """File of the report of a test: its node id in letters that every file system has."""
    name = re.sub(r"[^\w.\[\]-]+", "_", node, flags=re.ASCII)
    if name != node.replace("/", "_").replace("::", "_") or len(name) > _LONGEST:  # two may look the same
        name = f"{name[:_LONGEST]}-{hashlib.sha256(node.encode(errors='replace')).hexdigest()[:8]}"
    return f"{name}.json" if number == 1 else f"{name}-{number}.json"


def _compared(baseline: str, report: EfficiencyReport, name: str, folder: str | None) -> str:
    """Headline of the comparison with all runs of a test in the baseline; of several runs in the folder with all."""
    from dask_efficiency.report.compare import compare

    before = _whole(baseline, name, but=folder)
    after = [] if folder is None else _whole(folder, name, but=baseline)
    return f"against the baseline: {compare(before, after or report).headline}" if before else ""


def _whole(folder: str, name: str, *, but: str | None) -> list[EfficiencyReport]:
    """Reports of this name in a folder, of runs to their end; none of the other folder if that lies in it."""
    from dask_efficiency.report.files import load_report

    root, other = Path(folder).resolve(), None if but is None else Path(but).resolve()
    paths = sorted(root.rglob(re.sub(r"([\[\]*?])", r"[\1]", name)))
    kept = paths if other is None or other in root.parents else [path for path in paths if other not in path.parents]
    return [report for report in map(load_report, kept) if not report.ended_by]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write what the tests of all processes told: the longest first, and what was not measured."""
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    told = [getattr(report, _ATTRIBUTE) for report in reports if hasattr(report, _ATTRIBUTE)]
    if not told:
        return
    from dask_efficiency.show.figures import harmless

    terminalreporter.section("dask-efficiency")
    measured = sorted((one for one in told if one["lines"]), key=lambda one: -one["seconds"])
    for one in measured[:_SHOWN]:
        terminalreporter.write_line(harmless(one["node"]))
        for line in (*one["lines"], *one["notes"]):
            terminalreporter.write_line(f"    {harmless(line)}")
    if measured[_SHOWN:]:
        terminalreporter.write_line(f"{len(measured) - _SHOWN} more tests were shorter")
    for one in (one for one in told if not one["lines"]):
        why = "; ".join(one["notes"]) or "no client gave work to a cluster"
        terminalreporter.write_line(harmless(f"{one['node']}: not measured, {why}"))
