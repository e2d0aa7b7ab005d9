"""Whether files are the ranks of one job, each of them once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from dask_efficiency.torch_traces.kineto.errors import RanksError
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace, RankTrace

#: Seconds between the windows of two ranks from which on they are of different runs: more than the clocks of the hosts
#: of one job differ, also where one of them is set to the wrong time zone's daylight saving.
MAX_APART_SECONDS = 2 * 3600

#: Ranks that a message names.
MAX_NAMED = 16


def check_one_job(trace: KinetoTrace) -> None:
    """Refuse ranks that are there twice, and files of different jobs.

    Raises
    ------
    RanksError
        It says which.
    """
    files = defaultdict(list)
    for rank in trace.ranks:
        files[rank.rank].append(rank)
    for number, several in files.items():
        if len(several) > 1:
            unsaid = any(_job(rank).get("rank") is None for rank in several)
            raise RanksError(
                f"rank {number} is there {len(several)} times: {', '.join(rank.path for rank in several)}"
                + (" (a file that does not say its rank is rank 0)" if unsaid else "")
            )
    for name in ("world_size", "backend"):
        _check_same(trace, name)
    for rank in trace.ranks:
        if rank.world_size is not None and rank.rank >= rank.world_size:
            raise RanksError(f"{rank.path} is of rank {rank.rank} in a job of {rank.world_size}")
    _check_one_run(trace)


def check_all_there(trace: KinetoTrace) -> None:
    """Refuse a job of which ranks are missing.

    Raises
    ------
    RanksError
        It says which.
    """
    if missing := trace.missing_ranks:
        raise RanksError(
            f"of a job of {trace.world_size} ranks, {_listed(missing)} missing, and {_listed(trace.numbers)} there; "
            "give a list of files to read only these"
        )


def _listed(ranks: Sequence[int]) -> str:
    named = ", ".join(map(str, ranks[:MAX_NAMED])) + (", ..." if len(ranks) > MAX_NAMED else "")
    return f"rank {named} is" if len(ranks) == 1 else f"{len(ranks)} ranks ({named}) are"


def _job(rank: RankTrace) -> dict[str, object]:
    job = rank.about.get("distributedInfo")
    return job if isinstance(job, dict) else {}


def _check_same(trace: KinetoTrace, name: str) -> None:
    first: RankTrace | None = None
    for rank in trace.ranks:
        if _job(rank).get(name) is None:
            continue
        first = first or rank
        if _job(rank)[name] != _job(first)[name]:
            raise RanksError(
                f"files of different jobs: {first.path} has {name} {_job(first)[name]!r}, "
                f"{rank.path} has {_job(rank)[name]!r}"
            )


def _check_one_run(trace: KinetoTrace) -> None:
    """All windows lie together, but for clocks that differ."""
    windows = sorted(
        (int(rank.events.start.min()), int(rank.events.stop.max()), rank.path)
        for rank in trace.ranks
        if len(rank.events)
    )
    reached, before = 0, ""
    for start, stop, path in windows:
        apart = (start - reached) / 1e9
        if before and apart > MAX_APART_SECONDS:
            raise RanksError(f"files of different runs: {path} begins {apart:.0f} s after the end of {before}")
        if stop > reached:
            reached, before = stop, path
