"""Batches of a trace's events, read from JSON into columns."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int8, Int32, Int64
from dask_efficiency.show.figures import format_count, name_of
from dask_efficiency.torch_traces.kineto.merged import PREFIX, label_of, merged
from dask_efficiency.torch_traces.kineto.numbers import (
    MAX_INSTANT,
    MAX_RANKS,
    NO_TIME,
    first_with,
    integers,
    nanoseconds,
)
from dask_efficiency.torch_traces.kineto.trace import (
    CALLS,
    GPU_WORK,
    KINETO_CATEGORIES,
    SAY_NOTHING,
    Category,
    Events,
    MemoryEvents,
)

#: By Kineto's name in lower case, today's and older ones.
_CATEGORIES = {name: category for category, name in KINETO_CATEGORIES.items()} | {
    "operator": Category.OPERATOR,
    **dict.fromkeys(("runtime", "hip_runtime", "xpu_runtime"), Category.RUNTIME),
    **dict.fromkeys(("driver", "xpu_driver"), Category.DRIVER),
    "memcpy": Category.COPY,
    "memset": Category.FILL,
    # What Kineto writes of itself, and what repeats other events.
    **dict.fromkeys(("trace", "overhead", "external_correlation", "cpu_instant_event"), Category.OTHER),
    **dict.fromkeys(("cuda_event", "cuda_profiler_range", "collective_comm"), Category.OTHER),
}

_NUMBER_AT_END = re.compile(r"(?:^|\s)(-?[0-9]{1,18})\s*$")
#: Nanoseconds from the median of a file's calls and operators from which on an instant on a GPU is damage, such as 0:
#: 2 hours, longer than profiles.
MAX_FROM_MEDIAN = 2 * 3600 * 1_000_000_000
#: Reasons for which an event of a file cannot be read.
UNREADABLE_EVENTS = ("no start", "no duration", "negative duration", "not an object", "an end after the year 2116")
#: Names of categories that a note lists, and that are counted apart.
MAX_NAMED, MAX_COUNTED = 4, 100
_NOTHING: Mapping[str, Any] = {}
#: Kineto's name of an allocation or release, and its names for their columns.
_MEMORY = "[memory]"
_OF_MEMORY = {
    "device_type": "Device Type",
    "device": "Device Id",
    "nbytes": "Bytes",
    "allocated": "Total Allocated",
    "reserved": "Total Reserved",
}
#: Metadata with names.
_NAMES = frozenset({"thread_name", "process_name"})

#: Kineto's names for the columns of a collective's event.
_NAMED = {"collective": "Collective name", "group": "Process Group Name", "element_type": "dtype"}


@lru_cache(maxsize=256)
def _category_of(name: Any) -> Category:
    return _CATEGORIES.get(str(name).lower(), Category.UNKNOWN)


def _which(categories: Iterable[Category]) -> Bool:
    """Mask of some categories, by category."""
    return np.isin(np.array(Category), list(categories))


_GPU_EVENTS = _which((*GPU_WORK, Category.SYNC, Category.GPU_ANNOTATION))
#: Events that can have a correlation with a call.
_ASKED_FOR = _which((*GPU_WORK, Category.SYNC))
_ARE_CALLS = _which(CALLS)
#: Operators and ranges on a CPU thread.
_ON_CPU = _which((Category.OPERATOR, Category.ANNOTATION))
_ON_THREADS = _ON_CPU | _ARE_CALLS | _which((Category.PYTHON,))
#: Events that can belong to a collective.
_COLLECTIVES = _ON_CPU | _which((Category.KERNEL, Category.COPY))

#: By categories whose events have them, Kineto's names for each column; of two names the first one present counts.
_ARGUMENTS: tuple[tuple[Bool, Mapping[str, Sequence[str]]], ...] = (
    (_which(Category), {"external": ("External id", "external id")}),
    (_ASKED_FOR | _ARE_CALLS, {"correlation": ("correlation",)}),
    (_ARE_CALLS, {"cbid": ("cbid",)}),
    (_ON_CPU, {"record_function": ("Record function id",)}),
    (_GPU_EVENTS, {"device": ("device",), "stream": ("stream",)}),
    (_which((Category.COPY, Category.FILL)), {"nbytes": ("bytes",)}),
    (
        _which((Category.SYNC,)),
        {"recorded_by": ("wait_on_cuda_event_record_corr_id",), "recorded_stream": ("wait_on_stream",)},
    ),
    (_COLLECTIVES, {"elements_in": ("In msg nelems",), "elements_out": ("Out msg nelems",)}),
)


def _argument_columns(
    arguments: Sequence[Mapping[str, Any]], present: Collection[str], category: Int8
) -> dict[str, NDArray[Any]]:
    """Columns of the numbers in events' ``args``; MISSING where the event's category means something else by it."""
    columns: dict[str, NDArray[Any]] = {}
    for categories, wanted in _ARGUMENTS:
        here = {key for keys in wanted.values() for key in keys} & set(present)
        rows = np.flatnonzero(categories[category]) if here else np.empty(0, np.intp)
        chosen = [arguments[row] for row in rows.tolist()]
        for name, keys in wanted.items():
            dtype = Events.dtypes()[name]
            columns[name] = column = np.full(len(arguments), MISSING, dtype)
            for key in keys:
                if key not in here:
                    continue
                numbers = integers([given.get(key, MISSING) for given in chosen], dtype)
                column[rows] = np.where(column[rows] == MISSING, numbers, column[rows])
    return columns


class ColumnsBuilder:
    """Columns of a file's events; batches are added in the order of the file."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        #: Labels of ranks in texts of processes, without a label first.
        self._labels: dict[str, int] = {"": 0}
        #: Labels of the events of each rank.
        self._labels_of: dict[int | None, set[int]] = {}
        #: Names of processes by number.
        self._process_names: dict[int, str] = {}
        #: Sentences on what is shown of the file, and on what tells ranks apart that were merged into it.
        self.notes: list[str] = []
        #: Names of threads by (label, process, thread).
        self._threads: dict[tuple[int, int, int], str] = {}
        #: Number of events by a category that is not known, and the processes in which these are.
        self._unknown: Counter[str] = Counter()
        self._unknown_in: Counter[int] = Counter()
        #: Members of process groups by name, as events have them.
        self.groups: dict[str, Any] = {}
        self._numbers: defaultdict[str, int] = defaultdict(count().__next__)
        #: Numbers below -1 of processes and threads that are a text without a number.
        self._texts: dict[str, int] = {}
        self._seen = 0
        self._parts: defaultdict[str, list[NDArray[Any]]] = defaultdict(list)
        self._memory: list[MemoryEvents] = []
        #: Label and process of each event of memory, and the rank of each label and process of :meth:`build`.
        self._memory_of: list[Int64] = []
        self._rank_of: dict[tuple[int, int], int] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Every name once, in the order of the file."""
        return tuple(self._numbers)

    def add(self, batch: Sequence[Any]) -> None:
        """Append the events of a batch that have a duration, and note names of threads."""
        first, self._seen = self._seen, self._seen + len(batch)
        if set(map(type, batch)) != {dict}:
            self.left_out["not an object"] += sum(type(event) is not dict for event in batch)
            batch = [event if type(event) is dict else _NOTHING for event in batch]
        phases = [event.get("ph") for event in batch]
        for event, phase in zip(batch, phases, strict=True):
            named = event.get("args") if phase == "M" and event.get("name") in _NAMES else None
            if type(named) is dict and "name" in named:
                process, thread, label = self._lanes([event])
                if event["name"] == "thread_name":
                    self._threads[int(label[0]), int(process[0]), int(thread[0])] = str(named["name"])
                else:
                    self._process_names[int(process[0])] = str(named["name"])
        if "i" in phases:
            self._add_memory([event for event in batch if event.get("ph") == "i" and event.get("name") == _MEMORY])
        at = np.array([position for position, phase in enumerate(phases) if phase == "X"], np.int32)
        events = [batch[position] for position in at.tolist()]
        start = nanoseconds([event.get("ts") for event in events])
        duration = nanoseconds([event.get("dur") for event in events])
        good = self._checked(start, duration)
        if not good.all():
            at, start, duration = at[good], start[good], duration[good]
            events = [batch[position] for position in at.tolist()]
        if events:
            self._append({"index": first + at, "start": start, "stop": start + duration})
            self._append(self._of(events))

    def threads(self, rank: int | None) -> dict[tuple[int, int], str]:
        """Names of threads by (process, thread), of a rank of :meth:`build`."""
        labels = self._labels_of.get(rank)
        named = self._threads.items()
        return {(process, thread): name for (label, process, thread), name in named if not labels or label in labels}

    def _add_memory(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Append allocations and releases; those without an instant, or without figures, are left out."""
        at = nanoseconds([event.get("ts") for event in events])
        good = np.array([type(event.get("args")) is dict for event in events], np.bool_)
        rows = good & (at > -MAX_INSTANT // 2) & (at < MAX_INSTANT // 2)
        chosen = [events[row]["args"] for row in np.flatnonzero(rows).tolist()]
        dtypes, missing = MemoryEvents.dtypes(), MemoryEvents.missing()
        columns = {
            name: integers([one.get(key, missing[name]) for one in chosen], dtypes[name])
            for name, key in _OF_MEMORY.items()
        }
        process, _, label = self._lanes(events)
        self._memory.append(MemoryEvents(at=at[rows], **columns))
        self._memory_of.append(np.stack([label[rows], process[rows]], axis=1))

    def memory(self, rank: int | None, base: int = 0) -> MemoryEvents:
        """Allocations and releases of a rank of :meth:`build`."""
        if not self._memory:
            return MemoryEvents.empty()
        columns = {
            name: np.concatenate([getattr(part, name) for part in self._memory]) for name in MemoryEvents.dtypes()
        }
        mine = [
            self._rank_of.get((label, process)) == rank for label, process in np.concatenate(self._memory_of).tolist()
        ]
        return MemoryEvents(**columns | {"at": columns["at"] + base}).take(np.array(mine, np.bool_))

    def build(self, base: int = 0) -> dict[int | None, Events]:
        """Build a table for each rank, `base` nanoseconds later than the file's instants.

        One for all events, of no rank, unless several ranks were merged into the file.
        """
        columns = {name: np.concatenate(self._parts.pop(name)) for name in list(self._parts)}
        self._note_unknown()
        if not columns:
            return {None: Events.from_columns({})}
        columns = self._kept(columns, columns["stop"] <= MAX_INSTANT - base, "an end after the year 2116")
        columns = self._kept(columns, ~_far(columns), "work on a GPU hours away from the calls")
        columns["start"] += base
        columns["stop"] += base
        found = merged(columns, self.names, tuple(self._labels), self._process_names)
        label = columns.pop("label")
        del columns["rank"]
        if found is None:
            columns["call"] = _calls_of(columns["category"], columns["correlation"])
            return {None: Events.from_columns(columns)}
        self.notes += filter(None, [found.note])
        self._remove_prefixes(columns)
        for one, process, rank in np.unique(
            np.stack([label, columns["process"], found.ranks], axis=1), axis=0
        ).tolist():
            alone = (one, process) not in self._rank_of
            self._rank_of[one, process] = rank if alone else MISSING
        tables: dict[int | None, Events] = {}
        order = np.argsort(found.ranks, kind="stable")
        numbers, first = np.unique(found.ranks[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
            mine = {name: column[rows] for name, column in columns.items()}
            if number == MISSING:
                self._count_of_no_rank(mine["category"])
                continue
            self._labels_of[number] = set(np.unique(label[rows]).tolist())
            mine["call"] = _calls_of(mine["category"], mine["correlation"])
            tables[number] = Events.from_columns(mine)
        return tables

    def _count_of_no_rank(self, category: Int8) -> None:
        says, on_gpu = np.count_nonzero(~np.isin(category, SAY_NOTHING)), int(np.count_nonzero(_GPU_EVENTS[category]))
        for reason, number in (
            ("no rank, in a file of several", int(says) - on_gpu),
            ("on a GPU of which the file does not tell the rank", on_gpu),
        ):
            if number:
                self.left_out[reason] += number

    def _remove_prefixes(self, columns: dict[str, NDArray[Any]]) -> None:
        """Remove the rank from names, such as ``[R1] aten::mm``: they are the same functions on each."""
        if not any(map(PREFIX.match, self._numbers)):
            return
        names = self.names
        self._numbers.clear()
        self._numbers.default_factory = count().__next__
        number = np.array(self._number([PREFIX.sub("", name, count=1) for name in names]), np.int32)
        for name in ("name", *_NAMED):
            columns[name] = np.where(columns[name] == MISSING, MISSING, number[columns[name]]).astype(np.int32)

    def _kept(self, columns: dict[str, NDArray[Any]], good: Bool, otherwise: str) -> dict[str, NDArray[Any]]:
        if good.all():
            return columns
        self.left_out[otherwise] += int(np.count_nonzero(~good))
        return {name: column[good] for name, column in columns.items()}

    def _note_unknown(self) -> None:
        """Note the events of categories that are not known, and what is shown of them."""
        if not self._unknown:
            return
        named = _first_few([name for name, _ in self._unknown.most_common()])
        names = [self._process_names[one] for one, _ in self._unknown_in.most_common() if one in self._process_names]
        inside = f", in {_first_few(list(dict.fromkeys(names)))}" if names else ""
        self.notes.append(
            f"{format_count(self._unknown.total(), 'event')} of kinds that are not known here ({named}{inside}): what "
            "a device did then is not shown, nor which call waited for it. Operators, Python and named ranges of the "
            "CPU are; what a thread did during such an event is unattributed."
        )

    def _append(self, columns: Mapping[str, NDArray[Any]]) -> None:
        for name, column in columns.items():
            self._parts[name].append(column)

    def _checked(self, start: Int64, duration: Int64) -> Bool:
        no_start, no_duration = start == NO_TIME, duration == NO_TIME
        bad = no_start | no_duration | (duration < 0)
        reasons = {"no start": no_start, "no duration": no_duration & ~no_start}
        for reason, which in (reasons | {"negative duration": bad & ~no_start & ~no_duration}).items():
            if number := int(np.count_nonzero(which)):
                self.left_out[reason] += number
        good: Bool = ~bad
        return good

    def _of(self, events: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
        categories = [event.get("cat") for event in events]
        try:
            category = np.array([*map(_category_of, categories)], np.int8)
        except TypeError:  # a list, or an object, among them
            category = np.array([_category_of(str(name)) for name in categories], np.int8)
        for row in np.flatnonzero(category == Category.UNKNOWN).tolist():
            named = str(categories[row] or "no category")
            self._unknown[named if named in self._unknown or len(self._unknown) < MAX_COUNTED else "others"] += 1
        process, thread, label = self._lanes(events)
        self._unknown_in.update(process[category == Category.UNKNOWN].tolist())
        columns: dict[str, NDArray[Any]] = {
            "category": category,
            "name": np.array(self._number([event.get("name", "") for event in events]), np.int32),
            "process": process,
            "thread": thread,
            "label": label,
        }
        arguments: list[Mapping[str, Any]] = [event.get("args", _NOTHING) for event in events]
        if not set(map(type, arguments)) <= {dict}:
            arguments = [given if type(given) is dict else _NOTHING for given in arguments]
        present: set[str] = set().union(*arguments)
        ranks = [given.get("rank", MISSING) for given in arguments] if "rank" in present else [MISSING] * len(events)
        columns["rank"] = integers(ranks)
        columns.update(_argument_columns(arguments, present, category))
        columns.update(self._collectives(arguments, present))
        return _with_devices(columns)

    def _collectives(self, arguments: Sequence[Mapping[str, Any]], present: set[str]) -> dict[str, Int32]:
        columns = {name: np.full(len(arguments), MISSING, np.int32) for name in _NAMED}
        if _NAMED["collective"] in present:
            rows = [row for row, given in enumerate(arguments) if _NAMED["collective"] in given]
            for name, key in _NAMED.items():
                has = [row for row in rows if key in arguments[row]]
                columns[name][has] = self._number([str(arguments[row][key]) for row in has])
            for row in rows:
                given = arguments[row]
                if (group := given.get(_NAMED["group"])) is not None and str(group) not in self.groups:
                    self.groups[str(group)] = given.get("Process Group Ranks")
        return columns

    def _lanes(self, events: Sequence[Mapping[str, Any]]) -> tuple[Int64, Int64, Int32]:
        """Process and thread of each event, ``"stream 7"`` is 7; and the number of its rank's label."""
        process, thread = ([event.get(key) for event in events] for key in ("pid", "tid"))
        label = np.zeros(len(events), np.int32)
        if str in set(map(type, process)):
            label = np.array([self._label(value) if type(value) is str else 0 for value in process], np.int32)
        return self._lane_numbers(process), self._lane_numbers(thread), label

    def _label(self, process: str) -> int:
        """Number of the label of a rank in the text of a process; 0 for a text without, or for too many labels."""
        label = label_of(process)
        if label not in self._labels and len(self._labels) > MAX_RANKS:
            return 0
        return self._labels.setdefault(label, len(self._labels))

    def _lane_numbers(self, values: list[Any]) -> Int64:
        if set(map(type, values)) == {int}:
            return integers(values)
        numbers: dict[str, int] = {}
        for text in dict.fromkeys(value for value in values if type(value) is str):
            number = _NUMBER_AT_END.search(text)
            numbers[text] = int(number[1]) if number else self._texts.setdefault(text, MISSING - 1 - len(self._texts))
        return integers([numbers[value] if type(value) is str else value for value in values])

    def _number(self, names: Sequence[Any]) -> list[int]:
        if set(map(type, names)) != {str}:
            names = [name if type(name) is str else str(name) for name in names]
        numbers = self._numbers
        return [numbers[name] for name in names]


def _first_few(names: Sequence[str]) -> str:
    return ", ".join(map(name_of, names[:MAX_NAMED])) + (", ..." if len(names) > MAX_NAMED else "")


def _far(columns: Mapping[str, NDArray[Any]]) -> Bool:
    """Mask of the events on a GPU that are too far away in time from those on threads, or else from one another."""
    start: Int64 = columns["start"]
    on_gpu: Bool = _GPU_EVENTS[columns["category"]]
    among = np.flatnonzero(_ON_THREADS[columns["category"]])
    known = start[among] if len(among) else start[on_gpu]
    if not on_gpu.any():
        return on_gpu
    middle = np.partition(known, (len(known) - 1) // 2)[(len(known) - 1) // 2]
    far: Bool = on_gpu & (np.abs(start - middle) >= MAX_FROM_MEDIAN)
    return far


def _calls_of(category: Int8, correlation: Int64) -> Int32:
    """Row of the first call with an event's correlation, for work on a GPU and synchronisations; else MISSING.

    CUPTI writes a correlation of 0 where it knows of no call.
    """
    call = np.full(len(category), MISSING, np.int32)
    calls = np.flatnonzero(_ARE_CALLS[category] & (correlation > 0))
    asked = np.flatnonzero(_ASKED_FOR[category] & (correlation > 0))
    place = first_with(correlation[calls], correlation[asked])
    call[asked[place != MISSING]] = calls[place[place != MISSING]]
    return call


def _with_devices(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Fill in device and stream of events on a GPU that lack them: Kineto has them as process and thread, too."""
    on_gpu = _GPU_EVENTS[columns["category"]]
    for name, lane in (("device", "process"), ("stream", "thread")):
        number = columns[lane]
        unknown = on_gpu & (columns[name] == MISSING) & (number >= 0) & (number <= np.iinfo(np.int32).max)
        columns[name][unknown] = number[unknown]
    return columns
