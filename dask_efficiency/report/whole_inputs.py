"""Whole inputs: collections that are put together as an argument, which many tasks then take as a whole."""

from __future__ import annotations

import re
from collections import Counter

from dask_efficiency.accounts.buckets import HELD
from dask_efficiency.accounts.metered import BYTES
from dask_efficiency.report.computing import WORTH_AVOIDING, much_of_time
from dask_efficiency.report.culprits import senders
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.figures import format_bytes, format_count, name_of, sentence
from dask_efficiency.show.finding import Finding

#: Kind of the finding.
WHOLE_INPUTS = "whole-inputs"
#: Names of the tasks by which Dask puts a collection together.
_PUT_TOGETHER = re.compile(r"finalize|repartitiontofewer")
#: Bytes of the whole from which it is worth a finding, and tasks that take it: fewer may each need all of it. Guesses.
LARGE, MANY = 20_000_000, 4
#: Mean bytes of a task's inputs, as a share of the whole, from which the whole is one of them. By judgement.
NEARLY_ALL = 0.9
#: Share of their time that is taken to be in vain, to rank it. By judgement.
IN_VAIN = 0.7
_CONTEXT, _LABEL = "execute", "memory-read"


def whole_inputs(report: EfficiencyReport) -> Finding | None:
    """Finding of tasks of which each takes all of a collection, as where one is passed to a delayed function."""
    wholes = {prefix: one.max_bytes for prefix, one in report.skew.items() if _PUT_TOGETHER.match(prefix)}
    maker = max(wholes, key=wholes.__getitem__, default="")
    if not maker or wholes[maker] < LARGE:
        return None
    read: Counter[str] = Counter()
    for row in report.metered:
        if (row.context, row.label, row.unit) == (_CONTEXT, _LABEL, BYTES):
            read[row.prefix] += round(row.value)
    counts = {prefix: one.count for prefix, one in report.skew.items()}
    taken = {
        prefix: counts[prefix]
        for prefix, nbytes in read.items()
        if prefix != maker and counts.get(prefix, 0) >= MANY and nbytes >= NEARLY_ALL * wholes[maker] * counts[prefix]
    }
    if not taken:
        return None
    most = max(taken, key=taken.__getitem__)
    lines = senders(report, taken)
    (line, _), *_ = lines.most_common(1)
    shared = counts[maker] < taken[most]  # else each whole has one task, which may need all of it
    in_vain = (maker, *taken) if shared else (maker,)
    held = sum(report.by_prefix[prefix].ns(*HELD) for prefix in in_vain if prefix in report.by_prefix)
    tasks = f"each of {format_count(taken[most], 'task')} of {name_of(most)} takes {format_bytes(wholes[maker])}"
    place = f"{tasks} of {name_of(maker)}" + (f", computed by {sentence(line)}" if line else "")
    return much_of_time(report, WHOLE_INPUTS, held, place, least=WORTH_AVOIDING, weight=IN_VAIN)
