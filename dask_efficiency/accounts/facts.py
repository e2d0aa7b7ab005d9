"""Facts: one table of what was measured, from a worker's answer about a window to every figure of a report.

A row says what one worker spent or moved: in a span, on tasks of a prefix, in a bucket, for a cause. What is not known
of it is empty. Rows without a label are thread time, in nanoseconds, and a cause is a finer bucket: where somebody
looked for causes, those of a bucket add up to it, with ``unknown`` for the rest. Rows with a label are measured beside
the thread time, in the bucket's place with the context in which they were.

Not all is known together: the scheduler knows how much free time is whose span's, but not on which worker. Then one row
adds the time where it belongs, and another takes as much from where nothing was said of it. So sums by worker, span or
prefix are exact, with buckets and causes, and the sum of all rows is that of the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dask_efficiency.accounts.buckets import CAUSES, UNKNOWN, Breakdown, Bucket, cause_name, causes_of, fit_known_causes
from dask_efficiency.accounts.checks import MAX_NANOSECONDS, RefusedPayload, listed, mapping, shared_texts, short
from dask_efficiency.accounts.metered import SECONDS
from dask_efficiency.accounts.rows import add
from dask_efficiency.accounts.tables import Bool, Column, ColumnTable, Int32, Int64, frame_of, needs_pandas

if TYPE_CHECKING:
    import pandas as pd

#: Between the names of a span and of a span in it.
SEPARATOR = "/"
#: Rows of a table that is read, for sums of more may not be exact, and its names.
MAX_ROWS = 1 << 22
#: Causes that are told by prefix and by span; of ``overhead`` those of whole workers are known.
_OF_PREFIXES = frozenset({Bucket.THREAD_NONCPU})
_OF_SPANS = frozenset({Bucket.THREAD_NONCPU, Bucket.IDLE})
#: The lower half of a value.
_LOW = (1 << 31) - 1

#: Rows by name: numbers by bucket, or by cause.
Rows = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, repr=False)
class FactRows(ColumnTable):
    """Rows of :class:`Facts`; position 0 is the empty name."""

    worker: Annotated[Int32, Column(points_into="names", missing=0)]
    span: Annotated[Int32, Column(points_into="names", missing=0)]
    prefix: Annotated[Int32, Column(points_into="names", missing=0)]
    #: A :class:`~dask_efficiency.accounts.buckets.Bucket`; of rows with a label, where it was measured.
    bucket: Annotated[Int32, Column(points_into="names", missing=0)]
    cause: Annotated[Int32, Column(points_into="names", missing=0)]
    label: Annotated[Int32, Column(points_into="names", missing=0)]
    #: Empty for thread time.
    unit: Annotated[Int32, Column(points_into="names", missing=0)]
    #: In units, of seconds and thread time in nanoseconds.
    value: Annotated[Int64, Column(missing=0)]


#: Names of the columns that hold names, in order.
DIMENSIONS = tuple(name for name in FactRows.schema() if name != "value")


@dataclass(frozen=True, eq=False, repr=False)
class Facts:
    """A table of facts and its names, of which the first is empty."""

    names: tuple[str, ...]
    rows: FactRows

    @classmethod
    def of_views(cls, by_worker: Rows, by_prefix: Rows | None = None, causes: Rows | None = None) -> Facts:
        """Thread time that is known by worker, with its causes, and by prefix, but not by both."""
        builder = FactsBuilder()
        builder.add_workers(by_worker, causes or {})
        for prefix, row in (by_prefix or {}).items():
            for bucket, ns in row.items():
                builder.move(ns, {"bucket": bucket}, prefix=prefix)
        return builder.build()

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<Facts: {len(self)} rows, {len(self.names)} names>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Facts):
            return NotImplemented
        pairs = zip(self.rows.columns().values(), other.rows.columns().values(), strict=True)
        return self.names == other.names and all(np.array_equal(one, another) for one, another in pairs)

    __hash__ = None  # type: ignore[assignment]  # its arrays can be changed

    def take(self, rows: Bool | slice) -> Facts:
        """Select rows."""
        return Facts(self.names, self.rows.take(rows))

    def named(self, column: str, names: Collection[str]) -> Bool:
        """True for each row that has one of these names in a column."""
        is_one = np.array([name in names for name in self.names], np.bool_)
        found: Bool = is_one[getattr(self.rows, column)]
        return found

    def used(self, column: str) -> list[str]:
        """Names that a column has, each once."""
        return [self.names[place] for place in np.unique(getattr(self.rows, column)).tolist()]

    def sums(self, *by: str) -> dict[tuple[str, ...], int]:
        """Exact sums by the names in some columns, in the order in which these first appear."""
        if not len(self):
            return {}
        group, first = self._groups(by)
        order = np.argsort(first)
        at = first[order]
        high, low = (half[order].tolist() for half in _sums(group, self.rows.value, len(first)))
        names = [map(self.names.__getitem__, getattr(self.rows, column)[at].tolist()) for column in by]
        totals = ((above << 31) + below for above, below in zip(high, low, strict=True))
        return dict(zip(zip(*names, strict=True), totals, strict=True))

    def merged(self, *by: str) -> Facts:
        """Add up rows with the same names in some columns, in their order; the others are left empty.

        Sums that 63 bits may not hold stay apart.
        """
        group, first = self._groups(by)
        at, value = np.arange(len(self)), self.rows.value
        high, low = _sums(group, value, len(first))
        if np.abs(high).max(initial=0) < MAX_NANOSECONDS >> 32:
            order = np.argsort(first)
            at, value = first[order], ((high << 31) + low)[order]
        places = np.array([getattr(self.rows, column)[at] for column in by])
        used, places_now = np.unique(np.append(0, places), return_inverse=True)
        columns = dict(zip(by, places_now[1:].reshape(places.shape), strict=True))
        names = tuple(map(self.names.__getitem__, used.tolist()))
        return Facts(names, FactRows.from_columns({**columns, "value": value}))

    def _groups(self, by: Sequence[str]) -> tuple[Int64, Int64]:
        """Each row's group by the names in some columns, and the first row of each group."""
        group, groups = np.zeros(len(self), np.int64), 1
        for column in by:
            if groups * len(self.names) > MAX_NANOSECONDS:
                kept, group = np.unique(group, return_inverse=True)
                groups = len(kept)
            group, groups = group * len(self.names) + getattr(self.rows, column), groups * len(self.names)
        _, first, group = np.unique(group, return_index=True, return_inverse=True)
        return group, first

    @cached_property
    def time(self) -> Facts:
        """The thread time, without what has a label."""
        return self.take(self.rows.label == 0) if self.rows.label.any() else self

    @cached_property
    def labelled(self) -> Facts:
        """Rows of what was measured beside the thread time."""
        return self.take(self.rows.label != 0)

    @cached_property
    def by_worker(self) -> dict[str, Breakdown]:
        """Thread time of each worker, also of one that has none."""
        return {name: Breakdown(row) for name, row in self._rows("worker").items()}

    @cached_property
    def by_prefix(self) -> dict[str, Breakdown]:
        """Thread time of each prefix that has some."""
        return _breakdowns(self._rows("prefix"))

    @cached_property
    def by_span(self) -> dict[str, Breakdown]:
        """Thread time of each span that has some, with that of the spans in it."""
        return _breakdowns(rolled_up(self._rows("span")))

    @cached_property
    def whole(self) -> Breakdown:
        """Thread time of all workers."""
        total: dict[str, int] = {}
        for row in self.by_worker.values():
            add(total, row.to_nanoseconds())
        return Breakdown(total)

    @cached_property
    def causes_by_worker(self) -> dict[str, dict[str, int]]:
        """Nanoseconds of each worker by cause, where somebody looked."""
        return self._causes("worker", CAUSES)

    @cached_property
    def causes_by_prefix(self) -> dict[str, dict[str, int]]:
        """Nanoseconds of each prefix's waiting by cause."""
        return self._causes("prefix", _OF_PREFIXES)

    @cached_property
    def causes_by_span(self) -> dict[str, dict[str, int]]:
        """Nanoseconds of each span's waiting and idle time by cause."""
        return self._causes("span", _OF_SPANS)

    def to_frame(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame, with categories of names."""
        with needs_pandas():
            import pandas as pd

        names = pd.Index(self.names)
        columns: dict[str, Any] = {}
        for name in DIMENSIONS:
            used, codes = np.unique(getattr(self.rows, name), return_inverse=True)
            columns[name] = pd.Categorical.from_codes(codes, names[used])
        return frame_of({**columns, "value": self.rows.value})

    def _rows(self, by: str) -> dict[str, dict[str, int]]:
        """Thread time by the names in a column, and bucket; that without a name is left out."""
        found: dict[str, dict[str, int]] = {}
        for (name, bucket), ns in self.time.sums(by, "bucket").items():
            if name:
                found.setdefault(name, {})[bucket] = ns
        return found

    def _causes(self, by: str, buckets: Collection[Bucket]) -> dict[str, dict[str, int]]:
        sums = self.time.sums(by, "bucket", "cause")
        known = {bucket for name, bucket, cause in sums if name and cause}
        found: dict[str, dict[str, int]] = {}
        for (name, bucket, cause), ns in sums.items():
            if name and bucket in known and bucket in buckets and ns:
                add(found.setdefault(name, {}), {cause_name(bucket, cause or UNKNOWN): ns})
        if by == "span":
            found = rolled_up(found)
        rows = {name: {n: ns for b in buckets for n, ns in _named(row, b)} for name, row in found.items()}
        return {name: row for name, row in rows.items() if row}


def _named(row: Mapping[str, int], bucket: Bucket) -> Iterable[tuple[str, int]]:
    return [(cause_name(bucket, cause), ns) for cause, ns in causes_of(row, bucket).items()]


def _breakdowns(rows: Rows) -> dict[str, Breakdown]:
    return {name: Breakdown(row) for name, row in rows.items() if any(row.values())}


def _sums(group: Int64, values: Int64, groups: int) -> tuple[Int64, Int64]:
    """Exact sums of each group, in units of 2**31 and in ones: halves fit a float's 53 bits, up to 2**22 rows."""
    high, low = (np.bincount(group, half, groups).astype(np.int64) for half in (values >> 31, values & _LOW))
    return high, low


def rolled_up(rows: Rows) -> dict[str, dict[str, int]]:
    """Sum rows of spans, by paths such as ``"outer/inner"``, each with all below; the top adds up to the whole."""
    found: dict[str, dict[str, int]] = {}
    for path, row in rows.items():
        for above in (*reversed(parents(path)), path):
            add(found.setdefault(above, {}), row)
    return found


def parents(path: str) -> list[str]:
    """The paths above one, the nearest first."""
    steps = path.split(SEPARATOR)
    return [SEPARATOR.join(steps[:i]) for i in range(len(steps) - 1, 0, -1)]


class FactsBuilder:
    """Collects rows, one by one or a table at a time."""

    def __init__(self) -> None:
        self._places = {"": 0}
        self._new: list[tuple[int, ...]] = []
        self._tables: list[FactRows] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size + len(self._new)

    def add(self, value: int, **names: str) -> None:
        """Add a row, with names by column; one that 63 bits cannot hold becomes several."""
        places = self._places
        row = [places.setdefault(names.get(column, ""), len(places)) for column in DIMENSIONS]
        while abs(value) > MAX_NANOSECONDS:
            part = MAX_NANOSECONDS if value > 0 else -MAX_NANOSECONDS
            self._new.append((*row, part))
            value -= part
        self._new.append((*row, value))

    def move(self, value: int, names: Mapping[str, str], **more: str) -> None:
        """Take time from the rows with these names, and add it where ``more`` is said of it."""
        if value:
            self.add(value, **{**names, **more})
            self.add(-value, **names)

    def add_workers(self, by_worker: Rows, causes: Rows) -> None:
        """Add the thread time of workers, and its causes, which are fitted to it."""
        known = {bucket for bucket in CAUSES for row in causes.values() if causes_of(row, bucket)}
        for worker, row in by_worker.items():
            self.add(0, worker=worker, bucket=Bucket.IDLE)  # also of one without any time
            self.add_time(row, fit_known_causes(causes.get(worker, {}), row, known), worker=worker)

    def add_time(self, row: Mapping[str, int], causes: Mapping[str, int], **names: str) -> None:
        """Add thread time by bucket; with causes, by their names, that add up to their buckets or are left out."""
        explained = {name.partition("/")[0] for name in causes}
        for bucket, ns in row.items():
            if ns and bucket not in explained:
                self.add(ns, bucket=bucket, **names)
        for name, ns in causes.items():
            bucket, _, cause = name.partition("/")
            self.add(ns, bucket=bucket, cause=cause, **names)

    def append(self, facts: Facts, **names: str) -> None:
        """Add the rows of a table, with the same name in some columns."""
        places = self._places
        at = np.fromiter((places.setdefault(name, len(places)) for name in facts.names), np.int32, len(facts.names))
        columns: dict[str, Any] = {column: at[getattr(facts.rows, column)] for column in DIMENSIONS}
        for column, name in names.items():
            columns[column] = np.full(len(facts), places.setdefault(name, len(places)), np.int32)
        self._tables.append(FactRows(**columns, value=facts.rows.value))
        self._size += len(facts)

    def build(self) -> Facts:
        """The table so far."""
        new: Int64 = np.array(self._new, np.int64).reshape(-1, len(DIMENSIONS) + 1)
        tables = [FactRows(*new.T), *self._tables]
        columns = {name: np.concatenate([getattr(table, name) for table in tables]) for name in FactRows.schema()}
        return Facts(tuple(map(str, self._places)), FactRows(**columns))  # names of buckets are their strings


#: Stands for an empty label, as rows without one are thread time.
NO_LABEL = "(no label)"
#: Contexts of sums of the whole cluster: by activity outside the slots, by part of a bucket, and by way of data.
OUTSIDE, DETAILS, AMOUNTS = "outside", "details", "amounts"


def add_extras(builder: FactsBuilder, extras: Mapping[str, Mapping[str, int]]) -> None:
    """Add sums of the whole cluster by context and label; a label of :data:`AMOUNTS` ends in ``/unit``."""
    for context, row in extras.items():
        for label, value in row.items():
            name, _, unit = label.rpartition("/") if context == AMOUNTS else (label, "", SECONDS)
            builder.add(value, bucket=context, label=name or NO_LABEL, unit=unit)


# -- on the wire, and in files -----------------------------------------------------------------------


def encode_facts(facts: Facts) -> dict[str, Any]:
    """Encode for msgpack: names, and each column as bytes; positions in few names are short."""
    columns, n = facts.rows.columns(), len(facts.names)
    return {"names": [*facts.names], **{name: of.astype(_wire(name, n)).tobytes() for name, of in columns.items()}}


def decode_facts(payload: object, *, max_rows: int = MAX_ROWS, of_worker: bool = False) -> Facts:
    """Check and read what :func:`encode_facts` made; raises :class:`RefusedPayload`.

    The names ``of_worker`` may not be longer than any name of a worker's, and are shared with those of others.
    """
    fields = mapping("facts", payload)
    names = listed("facts.names", fields.get("names"), max_rows)
    columns: dict[str, Any] = {}
    for name in FactRows.schema():
        given, wire = fields.get(name), _wire(name, len(names))
        if not isinstance(given, bytes) or len(given) % np.dtype(wire).itemsize:
            raise RefusedPayload(f"facts.{name} is {short(given)}; expected the bytes of {wire} numbers")
        columns[name] = np.frombuffer(given, wire)
    return _checked(names, columns, max_rows, shared_texts if of_worker else _strings)


def facts_to_lists(facts: Facts) -> dict[str, list[Any]]:
    """Plain data for JSON: names, and each column."""
    return {"names": list(facts.names), **{name: column.tolist() for name, column in facts.rows.columns().items()}}


def facts_from_lists(payload: object) -> Facts:
    """Check and read what :func:`facts_to_lists` made; raises :class:`RefusedPayload`."""
    fields = mapping("facts", payload)
    columns: dict[str, Any] = {}
    for name in FactRows.schema():
        given = listed(f"facts.{name}", fields.get(name), MAX_ROWS)
        if not {*map(type, given)} <= {int}:
            raise RefusedPayload(f"facts.{name} holds {short(next(n for n in given if type(n) is not int))}; {_WHOLE}")
        try:
            columns[name] = np.array(given, np.int64)
        except OverflowError:
            raise RefusedPayload(f"facts.{name} holds {short(max(given, key=abs))}; {_WHOLE}") from None
    return _checked(fields.get("names"), columns)


_WHOLE = "expected whole numbers, up to 2**62"


def _wire(column: str, names: int) -> str:
    """Type of a column on the wire, of a table with so many names."""
    if column == "value":
        return "<i8"
    return "u1" if names <= 1 << 8 else "<u2" if names <= 1 << 16 else "<i4"


def _strings(name: str, values: Sequence[Any]) -> list[str]:
    for each in values:
        if not isinstance(each, str):
            raise RefusedPayload(f"{name} has {short(each)}; expected strings")
    return list(values)


def _checked(
    names: object,
    columns: Mapping[str, Any],
    max_rows: int = MAX_ROWS,
    check: Callable[[str, Sequence[Any]], list[str]] = _strings,
) -> Facts:
    found = check("facts.names", listed("facts.names", names, max_rows))
    if not found or found[0] or len(set(found)) < len(found):
        raise RefusedPayload(f"facts.names are {short(found)}; expected an empty name first, and each once")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or max(lengths.values()) > max_rows:
        raise RefusedPayload(f"facts have columns of {short(lengths)} rows; expected equal numbers, at most {max_rows}")
    for name, column in columns.items():
        low, high = (-MAX_NANOSECONDS, MAX_NANOSECONDS) if name == "value" else (0, len(found) - 1)
        if len(column) and not low <= (worst := _worst(column, low)) <= high:
            raise RefusedPayload(f"facts.{name} holds {worst}; expected {low} to {high}")
    return Facts(tuple(found), FactRows(**columns))


def _worst(column: Int64, low: int) -> int:
    return int(column.min()) if column.min() < low else int(column.max())


def time_by_cause(facts: Facts) -> dict[tuple[str, ...], int]:
    """Thread time by bucket and cause; RefusedPayload if one is unknown, or has less than nothing."""
    found = facts.time.sums("bucket", "cause")
    for (bucket, cause), ns in found.items():
        if cause not in _CAUSES.get(bucket, ()):
            where = short(cause_name(bucket, cause))
            raise RefusedPayload(f"facts have time in {where}; expected a known bucket and cause")
        if ns < 0:
            raise RefusedPayload(f"facts have {ns} ns of {short(cause_name(bucket, cause))}; expected 0 or more")
    return found


def check_views(facts: Facts) -> None:
    """Refuse thread time that no report could show: of unknown buckets or causes, or less than nothing."""
    time_by_cause(facts)
    for column in ("worker", "prefix", "span"):
        for (name, bucket), ns in facts.time.sums(column, "bucket").items():
            if ns < 0 and name:
                what = f"{ns} ns of {short((name, bucket))} by {column} and bucket"
                raise RefusedPayload(f"facts have {what}; expected 0 or more")
    for causes in (facts.causes_by_worker, facts.causes_by_prefix, facts.causes_by_span):
        for name, row in causes.items():
            if min(row.values()) < 0:
                raise RefusedPayload(f"facts have a cause below 0 in {short({name: row})}; expected 0 or more")


_CAUSES = {str(bucket): frozenset({"", *CAUSES.get(bucket, ())}) for bucket in Bucket}
