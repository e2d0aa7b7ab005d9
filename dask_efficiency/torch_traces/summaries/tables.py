"""Tables of a summary by name: columns over all ranks, for a screen, a page, JSON and pandas alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from dask_efficiency.accounts.tables import ColumnTable
from dask_efficiency.show.columns import Columns, TypedColumn, counts, seconds, shares, words
from dask_efficiency.torch_traces.summaries.groups import joined
from dask_efficiency.torch_traces.summaries.idle import IdleReasons
from dask_efficiency.torch_traces.summaries.merged import RankSummaries
from dask_efficiency.torch_traces.summaries.steps import outlying
from dask_efficiency.torch_traces.summaries.work_tables import WORK_TABLES

#: Mean numbers; and durations of calls and launches, which take microseconds.
means = partial(TypedColumn, text="{:.1f}".format, dtype=float)
microseconds = partial(TypedColumn, text=lambda value: f"{1e6 * value:.1f}", dtype=float, unit="us")

#: Parts of a breakdown, in the order of a table.
PARTS = ("compute", "hidden", "exposed", "copies", "idle")


def breakdown(ranks: RankSummaries) -> Columns:
    """Each rank's time by part; the parts add up to ``total``."""
    found = joined([rank.breakdown for rank in ranks])
    communication = found.hidden + found.exposed
    overlap = np.where(communication > 0, found.hidden / np.maximum(communication, 1), np.nan)
    return {
        "rank": counts(rank.rank for rank in ranks),
        "on": words("GPU" if rank.on_gpu else "CPU" for rank in ranks),
        "gpus": counts(rank.gpus for rank in ranks),
        **{name: seconds(getattr(found, name) / 1e9) for name in PARTS},
        "total": seconds(found.length / 1e9),
        "overlap": shares(overlap),
        "first_to_last_work": seconds(rank.working / 1e9 for rank in ranks),
    }


def idle(ranks: RankSummaries) -> Columns:
    """Each rank's idle time by reason; the reasons add up to ``total``."""
    return {
        "rank": counts(rank.rank for rank in ranks),
        **{name: seconds(rank.idle[name] / 1e9 for rank in ranks) for name in IdleReasons._fields},
        "total": seconds(sum(rank.idle.values()) / 1e9 for rank in ranks),
    }


def streams(ranks: RankSummaries) -> Columns:
    """Idle time of each stream by reason."""
    timed = dict.fromkeys(("host", "other_stream", "gap", "unknown"), seconds)
    return columns_of(ranks, [rank.streams for rank in ranks], timed)


def launches(ranks: RankSummaries) -> Columns:
    """Launch statistics of each stream."""
    timed = dict.fromkeys(("delay_median", "delay_p95", "delay_max", "call_median"), microseconds)
    kinds = timed | {"full": seconds, "queue_mean": means}
    return columns_of(ranks, [rank.launches for rank in ranks], kinds)


def steps(ranks: RankSummaries) -> Columns:
    """Each rank's steps by part; ``differs`` is true for one whose length is far from the median of the rank's."""
    tables = [rank.steps for rank in ranks]
    columns = columns_of(ranks, tables, dict.fromkeys((*PARTS, "idle_at_start"), seconds))
    del columns["start"], columns["stop"]
    numbers = {name: columns.pop(name) for name in ("rank", "number")}
    differs = np.concatenate([outlying(table.length) for table in tables])
    return {
        **numbers,
        **columns,
        "total": seconds(joined(tables).length / 1e9),
        "differs": TypedColumn(differs, dtype=bool),
    }


def columns_of(ranks: RankSummaries, tables: Sequence[ColumnTable], kinds: Mapping[str, Any]) -> dict[str, TypedColumn]:
    """Columns of a table of each rank, beside its number: seconds are nanoseconds there, and others counts."""
    numbers = np.repeat([rank.rank for rank in ranks], [len(table) for table in tables])
    columns = {"rank": counts(numbers)}
    for name, values in joined(tables).columns().items():
        kind = kinds.get(name, counts)
        columns[name] = kind(values / 1e9 if kind in (seconds, microseconds) else values)
    return columns


#: By name, the table of all ranks.
TABLES: Mapping[str, Callable[[RankSummaries], Columns]] = MappingProxyType(
    {"ranks": breakdown, "idle": idle, "streams": streams, "launches": launches, "steps": steps, **WORK_TABLES}
)
