"""Narrowed views: the part of a cluster's last minutes that is of some prefixes, spans or workers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.facts import Facts
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS
from dask_efficiency.live.last_seconds import Details, DetailsNow
from dask_efficiency.live.tab_view import TabView
from dask_efficiency.live.times import GpuTimes, WorkerTimes, prefix_times
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.show.figures import name_of

T = TypeVar("T")


class NameParts(NamedTuple):
    """Parts of names, upper and lower case alike; an empty one is in each name."""

    prefix: str = ""
    span: str = ""
    worker: str = ""

    @property
    def in_words(self) -> str:
        """Description for a headline."""
        tasks = [f"{kind} {name_of(part)}" for kind, part in (("prefix", self.prefix), ("span", self.span)) if part]
        words = [f"tasks of {' in '.join(tasks)}"] if tasks else []
        return ", ".join(words + [f"workers {name_of(self.worker)}"] * bool(self.worker))


def _is_in(part: str, name: str) -> bool:
    return part.casefold() in name.casefold()


def narrowed(view: TabView, wanted: NameParts, prefixes_in: Callable[[str], Collection[str]]) -> TabView:
    """Part of a view; ``prefixes_in`` gives the prefixes of the tasks in spans by a part of their names.

    Prefix and span narrow the time of tasks, of all workers as by prefix no other is known; a worker's name narrows
    what is by worker, and without the others the thread time too. The timeline, bytes and memory stay the cluster's.
    """
    last, of_tasks = view.last, bool(wanted.prefix or wanted.span)
    of_spans = prefixes_in(wanted.span) if wanted.span else None

    def is_wanted(prefix: str) -> bool:
        return _is_in(wanted.prefix, prefix) and (of_spans is None or prefix in of_spans)

    def part_of(details: Details | DetailsNow) -> Details:
        workers, gpus = details.workers, details.gpus
        here = np.array([_is_in(wanted.worker, name) for name in workers.names], dtype=bool)
        theirs = np.array([_is_in(wanted.worker, gpu.worker) for gpu in gpus.gpus], dtype=bool)
        return Details(
            details.at,
            WorkerTimes(
                _chosen(workers.keys, here),
                workers.nanoseconds[here],
                _chosen(workers.names, here),
                _chosen(workers.nthreads, here),
            ),
            GpuTimes(_chosen(gpus.keys, theirs), gpus.nanoseconds[theirs], _chosen(gpus.gpus, theirs)),
            {prefix: row for prefix, row in details.prefixes.items() if is_wanted(prefix)},
            details.amounts,
            details.memory,
        )

    then, now = part_of(last.then), part_of(last.now)
    if of_tasks:
        gained = prefix_times(then.prefixes, now.prefixes, at_most=len(now.prefixes)).seconds.sum(axis=0)
        did = {str(bucket): round(seconds * 1e9) for bucket, seconds in zip(TASK_BUCKETS, gained, strict=True)}
    else:
        did = dict(zip(ACTIVITIES, map(int, now.workers.since(then.workers).nanoseconds.sum(axis=0)), strict=True))
    part = replace(
        last,
        seconds=(now.at - then.at) / 1e9,
        nthreads=sum(now.workers.nthreads),
        facts=Facts.of_views({ALL_WORKERS: did}),
        then=then,
        now=now,
        not_sampled={name: why for name, why in last.not_sampled.items() if _is_in(wanted.worker, name)},
    )
    return replace(
        view,
        last=part,
        stragglers=[one for one in view.stragglers if _is_in(wanted.worker, one.subject)],
        stalls=[
            stall
            for stall in view.stalls
            if is_wanted(stall.prefix) and (not wanted.worker or any(_is_in(wanted.worker, w) for w in stall.workers))
        ],
        time_left=None,
        part_of=wanted.in_words,
    )


def _chosen(items: tuple[T, ...], which: NDArray[np.bool_]) -> tuple[T, ...]:
    return tuple(item for item, is_one in zip(items, which, strict=True) if is_one)
