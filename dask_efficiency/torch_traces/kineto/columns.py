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
from dask_efficiency.torch_traces.kineto.trace import CALLS, GPU_WORK, Category, Events

#: In lower case; those of old versions were ``Operator``, ``Runtime``, ``Kernel``, ``Memcpy`` and ``Memset``.
_CATEGORIES = {
    "cpu_op": Category.OPERATOR,
    "operator": Category.OPERATOR,
    "user_annotation": Category.ANNOTATION,
    "python_function": Category.PYTHON,
    "cuda_runtime": Category.RUNTIME,
    "hip_runtime": Category.RUNTIME,
    "runtime": Category.RUNTIME,
    "cuda_driver": Category.DRIVER,
    "driver": Category.DRIVER,
    "kernel": Category.KERNEL,
    "gpu_memcpy": Category.COPY,
    "memcpy": Category.COPY,
    "gpu_memset": Category.FILL,
    "memset": Category.FILL,
    "cuda_sync": Category.SYNC,
    "gpu_user_annotation": Category.GPU_ANNOTATION,
}


@lru_cache(maxsize=256)
def category_of(name: Any) -> Category:
    """What Kineto's ``cat`` means."""
    return _CATEGORIES.get(str(name).lower(), Category.OTHER)


def _which(categories: Iterable[Category]) -> Bool:
    """Whether each category is one of these."""
    chosen = frozenset(categories)
    return np.array([category in chosen for category in Category])


#: Whether a category's events are on a GPU, by category.
GPU_EVENTS = _which((*GPU_WORK, Category.SYNC, Category.GPU_ANNOTATION))
#: Whether they can have a correlation with a call.
ASKED_FOR = _which((*GPU_WORK, Category.SYNC))
#: Whether they are calls.
ARE_CALLS = _which(CALLS)
#: Whether they are operators or ranges on a CPU thread.
ON_CPU = _which((Category.OPERATOR, Category.ANNOTATION))
#: Whether they are copies or fills.
COPIES = _which((Category.COPY, Category.FILL))
#: Whether they are synchronisations.
SYNCS = _which((Category.SYNC,))
#: Whether they can be a collective's.
COLLECTIVES = ON_CPU | _which((Category.KERNEL, Category.COPY))
#: Of every category.
ALL = _which(Category)

_NUMBER_AT_END = re.compile(r"(?:^|\s)(-?[0-9]{1,18})\s*$")


class Lanes:
    """Numbers processes and threads; texts without a number get ones below -1, each its own."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, events: Sequence[Mapping[str, Any]]) -> tuple[Int64, Int64]:
        """Process and thread of each event; of ``"stream 7"`` the 7."""
        process, thread = ([event.get(key) for event in events] for key in ("pid", "tid"))
        return self._column(process), self._column(thread)

    def _column(self, values: list[Any]) -> Int64:
        if set(map(type, values)) == {int}:
            return integers(values)
        texts = {text: self._number(text) for text in dict.fromkeys(value for value in values if type(value) is str)}
        return integers([texts[value] if type(value) is str else value for value in values])

    def _number(self, text: str) -> int:
        if found := _NUMBER_AT_END.search(text):
            return int(found[1])
        return self._numbers.setdefault(text, MISSING - 1 - len(self._numbers))


#: By categories whose events have them: Kineto's names of a column; where there are two, the first one that is there.
_ARGUMENTS: tuple[tuple[Bool, Mapping[str, Sequence[str]]], ...] = (
    (ALL, {"external": ("External id", "external id")}),
    (ASKED_FOR | ARE_CALLS, {"correlation": ("correlation",)}),
    (ARE_CALLS, {"cbid": ("cbid",)}),
    (
        ON_CPU,
        {
            "sequence": ("Sequence number",),
            "forward_thread": ("Fwd thread id",),
            "record_function": ("Record function id",),
        },
    ),
    (GPU_EVENTS, {"device": ("device",), "stream": ("stream",)}),
    (COPIES, {"nbytes": ("bytes",)}),
    (SYNCS, {"recorded_by": ("wait_on_cuda_event_record_corr_id",), "recorded_stream": ("wait_on_stream",)}),
    (
        COLLECTIVES,
        {
            "group_size": ("Group size",),
            "elements_in": ("In msg nelems",),
            "elements_out": ("Out msg nelems",),
        },
    ),
)


def said_in(
    arguments: Sequence[Mapping[str, Any]], present: Collection[str], category: Int8
) -> dict[str, NDArray[Any]]:
    """The columns of these events' arguments.

    Parameters
    ----------
    arguments
        ``args`` of each event.
    present
        All names in them.
    category
        Of each event.

    Returns
    -------
    dict of arrays, shape (events,)
        MISSING where an event does not say it, or is of a category of which it would mean something else.
    """
    columns = {}
    for categories, wanted in _ARGUMENTS:
        rows = said = None
        for name, keys in wanted.items():
            dtype = Events.dtypes()[name]
            columns[name] = column = np.full(len(arguments), MISSING, dtype)
            for key in keys:
                if key not in present:
                    continue
                if rows is None or said is None:
                    rows = np.flatnonzero(categories[category])
                    said = [arguments[row] for row in rows.tolist()]
                found = integers([each.get(key, MISSING) for each in said], dtype)
                column[rows] = np.where(column[rows] == MISSING, found, column[rows])
    return columns


_NOTHING: Mapping[str, Any] = {}

#: Names of what a collective's event says, by column.
_NAMED = {"collective": "Collective name", "group": "Process Group Name", "element_type": "dtype"}


class ColumnsBuilder:
    """The columns of a file's events, to which batches are added in the order of the file."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        #: Names of threads by (process, thread).
        self.threads: dict[tuple[int, int], str] = {}
        #: Members of process groups, as events have them, by the group's name.
        self.groups: dict[str, Any] = {}
        self._numbers: defaultdict[str, int] = defaultdict(count().__next__)
        self._lanes = Lanes()
        self._seen = 0
        self._parts: defaultdict[str, list[NDArray[Any]]] = defaultdict(list)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name once, in the order of the file."""
        return tuple(self._numbers)

    def add(self, batch: Sequence[Any]) -> None:
        """Append the events of a batch that have a duration."""
        first, self._seen = self._seen, self._seen + len(batch)
        if set(map(type, batch)) != {dict}:
            self.left_out["not an object"] += sum(type(event) is not dict for event in batch)
            batch = [event if type(event) is dict else _NOTHING for event in batch]
        phases = [event.get("ph") for event in batch]
        for event, phase in zip(batch, phases, strict=True):
            if phase == "M" and event.get("name") == "thread_name":
                self._name_thread(event)
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
        """All that was added; `base` nanoseconds later than the file's instants."""
        columns = {}
        for name in list(self._parts):
            columns[name] = np.concatenate(self._parts.pop(name))
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
        negative = ~no_start & ~no_duration & (duration < 0)
        for reason, which in (
            ("no start", no_start),
            ("no duration", no_duration & ~no_start),
            ("negative duration", negative),
        ):
            if number := int(np.count_nonzero(which)):
                self.left_out[reason] += number
        good: Bool = ~(no_start | no_duration | negative)
        return good

    def _of(self, events: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
        categories = [event.get("cat") for event in events]
        try:
            category = np.array([*map(category_of, categories)], np.int8)
        except TypeError:  # a list, or an object, among them
            category = np.array([category_of(str(name)) for name in categories], np.int8)
        process, thread = self._lanes.of(events)
        columns: dict[str, NDArray[Any]] = {
            "category": category,
            "name": np.array(self._number([event.get("name", "") for event in events]), np.int32),
            "process": process,
            "thread": thread,
        }
        arguments: list[Mapping[str, Any]] = [event.get("args", _NOTHING) for event in events]
        if not set(map(type, arguments)) <= {dict}:
            arguments = [said if type(said) is dict else _NOTHING for said in arguments]
        present: set[str] = set().union(*arguments)
        columns.update(said_in(arguments, present, category))
        columns.update(self._collectives(arguments, present))
        return _with_devices(columns)

    def _collectives(self, arguments: Sequence[Mapping[str, Any]], present: set[str]) -> dict[str, Int32]:
        columns = {name: np.full(len(arguments), MISSING, np.int32) for name in _NAMED}
        if _NAMED["collective"] in present:
            rows = [row for row, said in enumerate(arguments) if _NAMED["collective"] in said]
            for name, key in _NAMED.items():
                has = [row for row in rows if key in arguments[row]]
                columns[name][has] = self._number([str(arguments[row][key]) for row in has])
            for row in rows:
                said = arguments[row]
                if (group := said.get(_NAMED["group"])) is not None and str(group) not in self.groups:
                    self.groups[str(group)] = said.get("Process Group Ranks")
        return columns

    def _number(self, names: Sequence[Any]) -> list[int]:
        if set(map(type, names)) != {str}:
            names = [name if type(name) is str else str(name) for name in names]
        numbers = self._numbers
        return [numbers[name] for name in names]

    def _name_thread(self, event: Mapping[str, Any]) -> None:
        arguments = event.get("args")
        if type(arguments) is dict and "name" in arguments:
            process, thread = self._lanes.of([event])
            self.threads[int(process[0]), int(thread[0])] = str(arguments["name"])


def _calls_of(category: Int8, correlation: Int64) -> Int32:
    """Row of the call with an event's correlation, for work on a GPU and synchronisations; of several the first one.

    A correlation of 0 is none: it stands where CUPTI knows of no call.

    Returns
    -------
    array, shape (events,)
        MISSING for everything else, and where the call was not recorded.
    """
    found = np.full(len(category), MISSING, np.int32)
    calls = np.flatnonzero(ARE_CALLS[category] & (correlation > 0))
    asked = np.flatnonzero(ASKED_FOR[category] & (correlation > 0))
    place = first_with(correlation[calls], correlation[asked])
    found[asked[place != MISSING]] = calls[place[place != MISSING]]
    return found


def _with_devices(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """With the device and the stream of events on a GPU that do not say them: these stand for process and thread."""
    on_gpu = GPU_EVENTS[columns["category"]]
    for name, lane in (("device", "process"), ("stream", "thread")):
        number = columns[lane]
        unsaid = on_gpu & (columns[name] == MISSING) & (number >= 0) & (number <= np.iinfo(np.int32).max)
        columns[name][unsaid] = number[unsaid]
    return columns
