"""Tables of kernels, operators, copies, collectives and memory over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Float64
from dask_efficiency.show.columns import Columns, TypedColumn, counts, names, seconds, shares, sizes, words
from dask_efficiency.show.figures import NAMES_IN_A_LINE, Scale, format_bytes, name_of, time_scale
from dask_efficiency.torch_traces.path.collectives import CollectiveKind
from dask_efficiency.torch_traces.summaries.groups import Groups
from dask_efficiency.torch_traces.summaries.kernel_kinds import KERNEL_LABELS, KernelKind
from dask_efficiency.torch_traces.summaries.kernel_labels import kernel_label
from dask_efficiency.torch_traces.summaries.merged import RankSummaries
from dask_efficiency.torch_traces.summaries.work import kernel_kind_times, kernel_times

#: Between the kernels of a sequence; the table has those of most time, with their first kernels. Guesses: a compiled
#: program is one operator with thousands of kernels.
SEPARATOR, MAX_SEQUENCES, MAX_KERNELS = " -> ", 100, 32
#: Unit of single kernels on a screen.
MICROSECONDS = Scale("us", "microseconds", 1e-6, 1)

#: PyTorch's kinds of devices by number.
DEVICES = {0: "CPU", 1: "CUDA", 6: "HIP", 12: "XPU", 13: "MPS", 20: "other accelerator"}


def _known(values: Any) -> list[int | None]:
    """Whole numbers, None where missing."""
    return [None if value == MISSING else value for value in values.tolist()]


def in_unit(values: Float64) -> TypedColumn:
    """Column of seconds in the unit that fits the largest."""
    return seconds(values, time_scale(float(np.nanmax(values, initial=0.0))))


def bytes_a_second(values: Any) -> Any:
    """Column of speeds."""
    return shares(values, text=lambda value: f"{format_bytes(value)}/s")


def kernel_kinds(ranks: RankSummaries) -> Columns:
    """Kernels by kind."""
    found = kernel_kind_times(ranks.work)
    return {
        "kind": words(KERNEL_LABELS[KernelKind(kind)] for kind in found.kind.tolist()),
        "count": counts(found.count),
        "total": in_unit(found.total_seconds),
        "share": shares(found.share),
    }


def kernels(ranks: RankSummaries) -> Columns:
    """Kernels by name, with the operator, module and line that launched most of their time."""
    work = ranks.work
    found, known = kernel_times(work), [*work.names, None]
    timed = ("mean", "median", "high", "longest", "shortest", "deviation")
    return {
        "name": names([known[row] for row in found.name], text=kernel_label),
        "kind": words(KERNEL_LABELS[KernelKind(kind)] for kind in found.kind.tolist()),
        "count": counts(found.count),
        "total": in_unit(found.total_seconds),
        **{name: seconds(getattr(found, f"{name}_seconds"), MICROSECONDS) for name in timed},
        "share": shares(found.share),
        **{name: names([known[row] for row in getattr(found, name)]) for name in ("operator", "module", "line")},
        "places": counts(found.places),
    }


def operators(ranks: RankSummaries) -> Columns:
    """Operators by name, those with most time of their own first, with the kernels that they launched."""
    work = ranks.work
    found = work.operators.take(np.argsort(-work.operators.own, kind="stable"))
    by_operator, sums = Groups.of(work.kernels.operator), work.kernels
    launched = np.zeros((2, len(work.names) + 1), np.int64)
    launched[:, sums.operator[by_operator.first]] = by_operator.sums(sums.count), by_operator.sums(sums.total)
    return {
        "name": names([work.names[row] for row in found.name]),
        "count": counts(found.count),
        "own": in_unit(found.own / 1e9),
        "total": in_unit(found.total / 1e9),
        "kernels": counts(launched[0][found.name]),
        "kernel_time": in_unit(launched[1][found.name] / 1e9),
    }


def sequences(ranks: RankSummaries) -> Columns:
    """Kernels that calls of an outermost operator launched one after another, those with most time first."""
    found = dict(islice(ranks.work.sequences.items(), MAX_SEQUENCES))
    times = [*found.values()]
    return {
        "operator": names(sequence.operator for sequence in found),
        "sequence": names((_text(sequence.kernels) for sequence in found), text=_sequence_label),
        "kernels": counts(len(sequence.kernels) for sequence in found),
        "count": counts(time.calls for time in times),
        "total": in_unit(np.array([time.kernel_time for time in times], np.float64) / 1e9),
        "operator_time": in_unit(np.array([time.operator_time for time in times], np.float64) / 1e9),
    }


def _text(kernels: Sequence[str]) -> str:
    return SEPARATOR.join((*kernels[:MAX_KERNELS], *(["..."] if len(kernels) > MAX_KERNELS else [])))


def _sequence_label(sequence: str) -> str:
    first = (str(kernel_label(name)).partition("<")[0] for name in sequence.split(SEPARATOR)[:NAMES_IN_A_LINE])
    return name_of(SEPARATOR.join(first))


def copies(ranks: RankSummaries) -> Columns:
    """Copies and fills by direction."""
    found = ranks.copies
    has_bytes = found.sums.sized > 0
    return {
        "direction": names([found.names[row] for row in found.sums.name]),
        "count": counts(found.sums.count),
        "total": in_unit(found.sums.total / 1e9),
        "longest": in_unit(found.sums.longest / 1e9),
        "bytes": sizes(_known(np.where(has_bytes, found.sums.nbytes, MISSING)), dtype=float),
        "bytes_per_second": bytes_a_second(found.sums.bytes_per_second),
    }


def collectives(ranks: RankSummaries) -> Columns:
    """Collectives by type, size and group; figures that need several ranks are missing where these were not read."""
    found = ranks.collectives
    sums, matched = found.sums, found.sums.matched > 0
    return {
        "type": words(CollectiveKind(kind).name.lower().replace("_", "-") for kind in sums.kind.tolist()),
        "bytes": sizes(_known(sums.nbytes), dtype=float),
        "group": names([found.groups[row] for row in sums.group]),
        "ranks": counts(_known(sums.size), dtype=float),
        "calls": counts(sums.calls),
        "total": in_unit(sums.total / 1e9),
        "matched": counts(sums.matched),
        "skew": in_unit(sums.mean_skew_seconds),
        "worst_skew": in_unit(np.where(matched, sums.worst_skew / 1e9, np.nan)),
        "last": counts(_known(sums.last), dtype=float),
        "last_count": counts(sums.last_count),
        "algorithm_bandwidth": bytes_a_second(sums.algorithm_bandwidth),
        "bus_bandwidth": bytes_a_second(sums.bus_bandwidth),
    }


def waits(ranks: RankSummaries) -> Columns:
    """Waits of each rank in collectives, and of others for it."""
    found = ranks.collectives.waits
    return {
        **{name: counts(getattr(found, name)) for name in ("rank", "collectives", "last")},
        "suffered": seconds(found.suffered_seconds),
        "caused": seconds(found.caused_seconds),
    }


def _device(device_type: Any, device: Any) -> list[str]:
    pairs = zip(device_type.tolist(), device.tolist(), strict=True)
    return [f"{DEVICES.get(kind, f'device type {kind}')}{'' if number < 0 else f' {number}'}" for kind, number in pairs]


def memory(ranks: RankSummaries) -> Columns:
    """Memory of each rank by device."""
    found = ranks.memory.peaks
    sized = ("peak_allocated", "peak_reserved", "last_allocated")
    after = np.where(found.peak_after == MISSING, np.nan, found.peak_after / 1e9)
    return {
        "rank": counts(found.rank),
        "device": words(_device(found.device_type, found.device)),
        **{name: sizes(_known(getattr(found, name)), dtype=float) for name in sized},
        "peak_after": seconds(after),
        "allocations": counts(found.allocations),
        "bytes": sizes(found.nbytes),
    }


def memory_timeline(ranks: RankSummaries) -> Columns:
    """Memory over time: the largest figures in each part of a rank's time."""
    found = ranks.memory.timeline
    return {
        "rank": counts(found.rank),
        "device": words(_device(found.device_type, found.device)),
        "after": seconds(found.after / 1e9),
        "allocated": sizes(found.allocated),
        "reserved": sizes(_known(found.reserved), dtype=float),
    }


#: By name, the table of all ranks.
WORK_TABLES: Mapping[str, Callable[[RankSummaries], Columns]] = {
    "kernel_kinds": kernel_kinds,
    "kernels": kernels,
    "operators": operators,
    "sequences": sequences,
    "copies": copies,
    "collectives": collectives,
    "waits": waits,
    "memory": memory,
    "memory_timeline": memory_timeline,
}
