"""Again: how much thread time went into results that were computed before, in tasks of their own or within others."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from dask_efficiency.accounts.buckets import HELD
from dask_efficiency.accounts.lines import Stack
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import ProfileRow, Repeat

_OF_DASK = re.compile(
    r"(^|[/\\])dask[/\\]((array|bag|bytes|dataframe)[/\\]|(_task_spec|base|blockwise|core|delayed|layers|utils)\.py$)"
)
#: Names of operators by those of NumPy's functions that compute them.
_OPERATORS = {
    "subtract": "sub",
    "multiply": "mul",
    "divide": "truediv",
    "true_divide": "truediv",
    "power": "pow",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "greater": "gt",
    "less": "lt",
    "absolute": "abs",
}


class Again(NamedTuple):
    """Thread-seconds in results that were computed again, and of which."""

    seconds: float
    tasks: int
    times: int
    #: What most of them compute again, in words, and their prefix.
    most: str
    prefix: str


def computed_again(report: EfficiencyReport, exact: Sequence[ProfileRow]) -> Again | None:
    """Time of results that were computed again; of those within tasks, by samples in the functions they are named for.

    None without any time.
    """
    seconds = defaultdict[str, float](float)
    steps: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, repeat in report.repeats.items():
        if repeat.within:
            steps[repeat.within][repeat.name] = name
        elif row := report.by_prefix.get(name):
            seconds[name] = _share(report, name, repeat) * row.ns(*HELD) / 1e9
    for one in exact:
        names = steps.get(one.prefix, {})
        name = names.get(_step(one.stack), "")
        if name:
            of_tasks = 1.0 - _share(report, one.prefix, report.repeats[one.prefix]) if one.prefix in seconds else 1.0
            seconds[name] += of_tasks * _share(report, one.prefix, report.repeats[name]) * one.ns / 1e9
    counted = [name for name in report.repeats if seconds[name] > 0]
    if not counted:
        return None
    repeats = {name: report.repeats[name] for name in counted}
    # Steps of one task are one task.
    tasks = {repeat.within or name: 0 for name, repeat in repeats.items()}
    for name, repeat in repeats.items():
        tasks[repeat.within or name] = max(tasks[repeat.within or name], repeat.tasks)
    most = max(counted, key=lambda name: (repeats[name].tasks, seconds[name]))
    times = max(repeat.times for repeat in repeats.values())
    words = f"{repeats[most].name} in tasks of {repeats[most].within}" if repeats[most].within else most
    return Again(sum(seconds.values()), sum(tasks.values()), times, words, repeats[most].within or most)


def _share(report: EfficiencyReport, prefix: str, repeat: Repeat) -> float:
    """Share of the tasks of a prefix that computed something again."""
    skew = report.skew.get(prefix)
    return min(repeat.tasks / skew.count, 1.0) if skew is not None and skew.count else 0.0


def _step(stack: Stack) -> str:
    """Name of the function that Dask called, the outermost of others than its own, as it names keys for it."""
    called = next((frame.function for frame in stack if not _OF_DASK.search(frame.file)), "")
    name = called.partition("(")[0].rpartition(".")[2].strip("<>")
    return _OPERATORS.get(name, name)
