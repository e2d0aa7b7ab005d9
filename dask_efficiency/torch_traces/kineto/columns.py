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
from dask_efficiency.torch_traces.kineto.numbers import MAX_INSTANT, NO_TIME, first_with, integers, nanoseconds
from dask_efficiency.torch_traces.kineto.trace import CALLS, GPU_WORK, KINETO_CATEGORIES, Category, Events

#: By Kineto's name in lower case, today's and older ones.
_CATEGORIES = {name: category for category, name in KINETO_CATEGORIES.items()} | {
    "operator": Category.OPERATOR,
    **dict.fromkeys(("runtime", "hip_runtime"), Category.RUNTIME),
    "driver": Category.DRIVER,
    "memcpy": Category.COPY,
    "memset": Category.FILL,
}

_NUMBER_AT_END = re.compile(r"(?:^|\s)(-?[0-9]{1,18})\s*$")
_NOTHING: Mapping[str, Any] = {}

#: Kineto's names for the columns of a collective's event.
_NAMED = {"collective": "Collective name", "group": "Process Group Name", "element_type": "dtype"}


@lru_cache(maxsize=256)
def _category_of(name: Any) -> Category:
    return _CATEGORIES.get(str(name).lower(), Category.OTHER)


def _which(categories: Iterable[Category]) -> Bool:
    """Mask of some categories, by category."""
    return np.isin(np.array(Category), list(categories))


_GPU_EVENTS = _which((*GPU_WORK, Category.SYNC, Category.GPU_ANNOTATION))
#: Events that can have a correlation with a call.
_ASKED_FOR = _which((*GPU_WORK, Category.SYNC))
_ARE_CALLS = _which(CALLS)
#: Operators and ranges on a CPU thread.
_ON_CPU = _which((Category.OPERATOR, Category.ANNOTATION))
#: Events that can belong to a collective.
_COLLECTIVES = _ON_CPU | _which((Category.KERNEL, Category.COPY))

#: By categories whose events have them, Kineto's names for each column; of two names the first one present counts.
_ARGUMENTS: tuple[tuple[Bool, Mapping[str, Sequence[str]]], ...] = (
    (_which(Category), {"external": ("External id", "external id")}),
    (_ASKED_FOR | _ARE_CALLS, {"correlation": ("correlation",)}),
    (_ARE_CALLS, {"cbid": ("cbid",)}),
    (
        _ON_CPU,
        {
            "sequence": ("Sequence number",),
            "forward_thread": ("Fwd thread id",),
            "record_function": ("Record function id",),
        },
    ),
    (_GPU_EVENTS, {"device": ("device",), "stream": ("stream",)}),
    (_which((Category.COPY, Category.FILL)), {"nbytes": ("bytes",)}),
    (
        _which((Category.SYNC,)),
        {"recorded_by": ("wait_on_cuda_event_record_corr_id",), "recorded_stream": ("wait_on_stream",)},
    ),
    (
        _COLLECTIVES,
        {"group_size": ("Group size",), "elements_in": ("In msg nelems",), "elements_out": ("Out msg nelems",)},
    ),
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
                found = integers([each.get(key, MISSING) for each in chosen], dtype)
                column[rows] = np.where(column[rows] == MISSING, found, column[rows])
    return columns


class ColumnsBuilder:
    """Columns of a file's events; batches are added in the order of the file."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        #: Names of threads by (process, thread).
        self.threads: dict[tuple[int, int], str] = {}
        #: Members of process groups by name, as events have them.
        self.groups: dict[str, Any] = {}
        self._numbers: defaultdict[str, int] = defaultdict(count().__next__)
        #: Numbers below -1 of processes and threads that are a text without a number.
        self._texts: dict[str, int] = {}
        self._seen = 0
        self._parts: defaultdict[str, list[NDArray[Any]]] = defaultdict(list)

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
            named = event.get("args") if phase == "M" and event.get("name") == "thread_name" else None
            if type(named) is dict and "name" in named:
                process, thread = self._lanes([event])
                self.threads[int(process[0]), int(thread[0])] = str(named["name"])
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

    def build(self, base: int = 0) -> Events:
        """Build the table, `base` nanoseconds later than the file's instants."""
        columns = {name: np.concatenate(self._parts.pop(name)) for name in list(self._parts)}
        if columns:
            known = columns["stop"] <= MAX_INSTANT - base
            if not known.all():
                self.left_out["an end after the year 2116"] += int(np.count_nonzero(~known))
                columns = {name: column[known] for name, column in columns.items()}
            columns["start"] += base
            columns["stop"] += base
        if columns:
            columns["call"] = _calls_of(columns["category"], columns["correlation"])
        return Events.from_columns(columns)

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
        process, thread = self._lanes(events)
        columns: dict[str, NDArray[Any]] = {
            "category": category,
            "name": np.array(self._number([event.get("name", "") for event in events]), np.int32),
            "process": process,
            "thread": thread,
        }
        arguments: list[Mapping[str, Any]] = [event.get("args", _NOTHING) for event in events]
        if not set(map(type, arguments)) <= {dict}:
            arguments = [each if type(each) is dict else _NOTHING for each in arguments]
        present: set[str] = set().union(*arguments)
        columns.update(_argument_columns(arguments, present, category))
        columns.update(self._collectives(arguments, present))
        return _with_devices(columns)

    def _collectives(self, arguments: Sequence[Mapping[str, Any]], present: set[str]) -> dict[str, Int32]:
        columns = {name: np.full(len(arguments), MISSING, np.int32) for name in _NAMED}
        if _NAMED["collective"] in present:
            rows = [row for row, each in enumerate(arguments) if _NAMED["collective"] in each]
            for name, key in _NAMED.items():
                has = [row for row in rows if key in arguments[row]]
                columns[name][has] = self._number([str(arguments[row][key]) for row in has])
            for row in rows:
                each = arguments[row]
                if (group := each.get(_NAMED["group"])) is not None and str(group) not in self.groups:
                    self.groups[str(group)] = each.get("Process Group Ranks")
        return columns

    def _lanes(self, events: Sequence[Mapping[str, Any]]) -> tuple[Int64, Int64]:
        """Process and thread of each event; ``"stream 7"`` is 7."""
        process, thread = ([event.get(key) for event in events] for key in ("pid", "tid"))
        return self._lane_numbers(process), self._lane_numbers(thread)

    def _lane_numbers(self, values: list[Any]) -> Int64:
        if set(map(type, values)) == {int}:
            return integers(values)
        found: dict[str, int] = {}
        for text in dict.fromkeys(value for value in values if type(value) is str):
            number = _NUMBER_AT_END.search(text)
            found[text] = int(number[1]) if number else self._texts.setdefault(text, MISSING - 1 - len(self._texts))
        return integers([found[value] if type(value) is str else value for value in values])

    def _number(self, names: Sequence[Any]) -> list[int]:
        if set(map(type, names)) != {str}:
            names = [name if type(name) is str else str(name) for name in names]
        numbers = self._numbers
        return [numbers[name] for name in names]


def _calls_of(category: Int8, correlation: Int64) -> Int32:
    """Row of the first call with an event's correlation, for work on a GPU and synchronisations; else MISSING.

    CUPTI writes a correlation of 0 where it knows of no call.
    """
    found = np.full(len(category), MISSING, np.int32)
    calls = np.flatnonzero(_ARE_CALLS[category] & (correlation > 0))
    asked = np.flatnonzero(_ASKED_FOR[category] & (correlation > 0))
    place = first_with(correlation[calls], correlation[asked])
    found[asked[place != MISSING]] = calls[place[place != MISSING]]
    return found


def _with_devices(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Fill in device and stream of events on a GPU that lack them: Kineto has them as process and thread, too."""
    on_gpu = _GPU_EVENTS[columns["category"]]
    for name, lane in (("device", "process"), ("stream", "thread")):
        number = columns[lane]
        unknown = on_gpu & (columns[name] == MISSING) & (number >= 0) & (number <= np.iinfo(np.int32).max)
        columns[name][unknown] = number[unknown]
    return columns
