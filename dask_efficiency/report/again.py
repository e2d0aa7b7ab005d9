"""Again: how much thread time went into results that were computed before, in tasks of their own or within others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from dask_efficiency.accounts.buckets import HELD
from dask_efficiency.accounts.lines import Stack
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import ProfileRow, Repeat


class Again(NamedTuple):
    """Thread-seconds in results that were computed again, and of which."""

    seconds: float
    tasks: int
    times: int
    #: Name of :attr:`EfficiencyReport.repeats` with most tasks, and the prefix of these.
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
        for name in [names[each] for each in _names(one.stack) if each in names][:1] if names else ():
            seconds[name] += _share(report, one.prefix, report.repeats[name]) * one.ns / 1e9
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
    return Again(sum(seconds.values()), sum(tasks.values()), times, most, repeats[most].within or most)


def _share(report: EfficiencyReport, prefix: str, repeat: Repeat) -> float:
    """Share of the tasks of a prefix that computed something again."""
    skew = report.skew.get(prefix)
    return min(repeat.tasks / skew.count, 1.0) if skew is not None and skew.count else 0.0


def _names(stack: Stack) -> list[str]:
    """Bare names of functions and operations, the innermost first, as Dask names keys for them."""
    return [frame.function.partition("(")[0].rpartition(".")[2].strip("<>") for frame in reversed(stack)]
