"""Ranks that were merged into one file: what tells the events of one from those of another.

There is no common form. Tools that merge have put a label into the texts of processes (``[TP00] 5000``, ``rank_1``), a
number into each event's ``args.rank``, a prefix into each name (``[R1] aten::mm``), or the rank into the processes'
names, with numbers of processes and devices moved apart or not; or they put the lists one after another, so that only
the processes of the program differ. Whatever tells the rank of most events counts, in this order.

Where nothing but processes tells the ranks, numbers of devices may be those of several hosts, and correlations begin
anew in each process. Then a device's work belongs to the process whose calls precede all of it, if there is only one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int64
from dask_efficiency.torch_traces.kineto.numbers import MAX_RANKS, first_with
from dask_efficiency.torch_traces.kineto.trace import CALLS, GPU_WORK, SAY_NOTHING, Category

#: A rank's number in a text: ``rank 1: 5000``, ``python_rank1``, ``RANK 1 - GPU``.
_RANK = re.compile(r"(?<![a-z])rank[\s_:#-]*([0-9]{1,7})(?![0-9])", re.IGNORECASE)
#: The text of a process that begins with a label, such as ``[TP00-DP01] 5000``.
_LABEL = re.compile(r"\[[^\]]*[0-9][^\]]*\](?=[\s:_-]|$)")
#: A prefix of names of events.
PREFIX = re.compile(r"\[R([0-9]{1,7})\] ")
#: Share of the events that say something whose rank must be known, and of a device's work whose call must be.
MOST = 0.5
#: Share of a device's work that the calls of its process precede, nanoseconds by which clocks may differ, and share of
#: a stream's work that may overlap the work before it, as damaged records do.
PRECEDED, SLACK, OVERLAPS = 0.99, 100_000, 0.01

_Columns = Mapping[str, NDArray[Any]]


def label_of(process: str) -> str:
    """Label of a rank in the text of a process; empty without one."""
    found = _LABEL.match(process) or _RANK.search(process)
    return found[0] if found else ""


@dataclass(frozen=True, slots=True)
class Merged:
    """Ranks of a file's events."""

    #: Rank of each event, MISSING where it is not known.
    ranks: Int64
    #: Sentence on what tells them, where that is not a number that the file gives them.
    note: str = ""


def merged(
    columns: _Columns, names: Sequence[str], labels: Sequence[str], process_names: Mapping[int, str]
) -> Merged | None:
    """Tell the ranks of a file's events apart; None for the trace of one process.

    The columns have the positions of a name and of a label, and ``rank``, which is that in ``args``. The first label is
    that of events without one.
    """
    says: Bool = ~np.isin(columns["category"], SAY_NOTHING)
    for found in _candidates(columns, names, labels, process_names):
        known = says & (found.ranks != MISSING)
        numbers = np.unique(found.ranks[known])
        if 1 < len(numbers) <= MAX_RANKS and np.count_nonzero(known) > MOST * np.count_nonzero(says):
            return found
    return None


def _candidates(
    columns: _Columns, names: Sequence[str], labels: Sequence[str], process_names: Mapping[int, str]
) -> Iterator[Merged]:
    if len(labels) > 2:  # one rank of a job alone can have a label, too
        yield Merged(np.array([MISSING, *_numbered(labels[1:])], np.int64)[columns["label"]])
    given: Int64 = columns["rank"]
    if (given != MISSING).any():
        yield Merged(np.where((given >= 0) & (given < MAX_RANKS), given, MISSING))
    prefixes = [PREFIX.match(name) for name in names]
    if any(prefixes):
        yield Merged(np.array([int(found[1]) if found else MISSING for found in prefixes], np.int64)[columns["name"]])
    if (found := _by_process(columns, process_names)) is not None:
        yield found


def _numbered(labels: Sequence[str]) -> list[int]:
    """Numbers of ranks from their labels: those in them, or else their positions in order."""
    found = [_RANK.search(label) for label in labels]
    numbers = [int(each[1]) for each in found if each]
    if len(set(numbers)) == len(labels) and max(numbers) < MAX_RANKS:
        return numbers
    in_order = sorted(labels)
    return [in_order.index(label) for label in labels]


def _by_process(columns: _Columns, process_names: Mapping[int, str]) -> Merged | None:
    """Ranks by the processes of the program, in the order of their numbers if their names have none."""
    process, category = columns["process"], columns["category"]
    # A process with ranges alone is no rank: the steps of a profile that someone shortened had another number.
    programs = np.unique(process[(category == Category.OPERATOR) & (process >= 0)])
    if not 1 < len(programs) <= MAX_RANKS:
        return None
    of_name = {number: int(found[1]) for number, name in process_names.items() if (found := _RANK.search(name))}
    numbers = [of_name.get(number, MISSING) for number in programs.tolist()]
    are_named = MISSING not in numbers and len(set(numbers)) == len(numbers) and max(numbers) < MAX_RANKS
    rank_of = dict(zip(programs.tolist(), numbers if are_named else range(len(programs)), strict=True))
    on_gpu: Bool = np.isin(category, (*GPU_WORK, Category.SYNC, Category.GPU_ANNOTATION))
    devices = {number: of_name[number] for number in np.unique(process[on_gpu]).tolist() if number in of_name}
    if not are_named or not set(devices.values()) <= set(numbers) or len(devices) < len(np.unique(process[on_gpu])):
        devices = {device: rank_of[program] for device, program in _programs_of(columns, programs).items()}
    ranks = np.full(len(process), MISSING, np.int64)
    for where, known in ((~on_gpu, rank_of), (on_gpu, devices)):
        rows = np.flatnonzero(where)
        place = first_with(np.array(list(known), np.int64), process[rows])
        ranks[rows] = np.array([*known.values(), MISSING], np.int64)[place]  # the last is for those that are missing
    note = (
        "" if are_named else f"The {len(programs)} processes of the file are read as ranks, in the order of their ids."
    )
    return Merged(ranks, note)


def _programs_of(columns: _Columns, programs: Int64) -> dict[int, int]:
    """Process whose calls asked for all of a device's work, by device; those of which that is not sure are left out."""
    process, correlation, start = columns["process"], columns["correlation"], columns["start"]
    is_work: Bool = np.isin(columns["category"], GPU_WORK) & (correlation > 0)
    is_call: Bool = np.isin(columns["category"], CALLS) & (correlation > 0)
    calls = {int(program): np.flatnonzero(is_call & (process == program)) for program in programs.tolist()}
    may: dict[int, set[int]] = {}
    for device in np.unique(process[is_work]).tolist():
        rows = np.flatnonzero(is_work & (process == device))
        if _is_mixed(columns, rows):
            continue
        for program, of_program in calls.items():
            place = first_with(correlation[of_program], correlation[rows])
            asked = start[of_program[place]] if len(of_program) else start[rows]
            has_call, is_after = place != MISSING, asked <= start[rows] + SLACK
            known = np.count_nonzero(has_call)  # of some, no call was recorded
            if known > MOST * len(rows) and np.count_nonzero(has_call & is_after) >= PRECEDED * known:
                may.setdefault(device, set()).add(program)
    found: dict[int, int] = {}
    # The calls of a rank that is ahead precede the work of others, too; but not the other way round.
    while sure := {device: min(found_of) for device, found_of in may.items() if len(found_of) == 1}:
        found |= sure
        may = {device: of - set(sure.values()) for device, of in may.items() if device not in sure}
    return found


def _is_mixed(columns: _Columns, rows: NDArray[np.intp]) -> bool:
    """True if the work of one stream overlaps: it is of several devices with one number."""
    rows = rows[np.lexsort((columns["start"][rows], columns["thread"][rows]))]
    stream, start, stop = (columns[name][rows] for name in ("thread", "start", "stop"))
    overlaps = (stream[1:] == stream[:-1]) & (start[1:] < stop[:-1])
    return bool(np.count_nonzero(overlaps) > OVERLAPS * len(rows))
