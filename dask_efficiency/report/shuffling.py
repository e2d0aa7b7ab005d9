"""Shuffling: what shuffles of rows take of all thread time, computing and waiting."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from dask_efficiency.accounts.buckets import HELD, Bucket
from dask_efficiency.accounts.metered import of_shuffles
from dask_efficiency.report.computing import much_of_time
from dask_efficiency.report.culprits import senders
from dask_efficiency.report.cures import with_recipe
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import ProfileRow
from dask_efficiency.show.figures import sentence
from dask_efficiency.show.finding import Finding

#: Kind of the finding.
SHUFFLING = "shuffling"
#: Tasks of shuffles that are no P2P shuffles, but go through files, or are cut into tasks.
_BY_TASKS = re.compile(r"diskshuffle|shuffle-partition|taskshuffle|simpleshuffle")


def shuffling(report: EfficiencyReport, exact: Iterable[ProfileRow]) -> Finding | None:
    """Finding of the tasks that put rows into shuffles and take them out, if these take much of all thread time.

    What all tasks compute tells what is shuffled, and so the recipe.
    """
    held: Counter[str] = Counter()
    for prefix, row in report.by_prefix.items():
        if of_shuffles(prefix) or _BY_TASKS.search(prefix):
            held[prefix] += row.ns(*HELD)
    (line, _), *_ = senders(report, held).most_common(1) or [("", 0)]
    found = much_of_time(report, SHUFFLING, held.total(), f"computed by {sentence(line)}" if line else "")
    if found is None:
        return None
    return with_recipe(report, found, [(row.stack, row.ns) for row in exact if row.bucket == Bucket.THREAD_CPU], held)
