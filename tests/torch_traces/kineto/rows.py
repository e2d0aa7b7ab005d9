"""Expected columns of events, one event at a time from the result of ``json.loads``."""

import json
import re
from decimal import Decimal
from typing import Any

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.torch_traces.kineto.trace import RankTrace

_CPU = {"cpu_op", "operator", "user_annotation"}
_CALLS = {"cuda_runtime", "runtime", "cuda_driver"}
_WORK = {"kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset"}
_GPU = {*_WORK, "cuda_sync", "gpu_user_annotation"}
_COPIES = {"gpu_memcpy", "memcpy", "gpu_memset", "memset"}
_COLLECTIVES = {*_CPU, "kernel", "gpu_memcpy", "memcpy"}

#: Column, Kineto's names, categories that have it, bits.
_NUMBERS = [
    ("external", ("External id", "external id"), None, 64),
    ("correlation", ("correlation",), {*_CALLS, *_WORK, "cuda_sync"}, 64),
    ("cbid", ("cbid",), _CALLS, 32),
    ("record_function", ("Record function id",), _CPU, 64),
    ("device", ("device",), _GPU, 32),
    ("stream", ("stream",), _GPU, 32),
    ("nbytes", ("bytes",), _COPIES, 64),
    ("recorded_by", ("wait_on_cuda_event_record_corr_id",), {"cuda_sync"}, 64),
    ("recorded_stream", ("wait_on_stream",), {"cuda_sync"}, 32),
    ("elements_in", ("In msg nelems",), _COLLECTIVES, 64),
    ("elements_out", ("Out msg nelems",), _COLLECTIVES, 64),
]


def expected(text: str | bytes) -> list[dict[str, Any]]:
    """A row for each event with a duration, in the order of the file."""
    trace = json.loads(text, parse_float=Decimal)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    base = trace.get("baseTimeNanoseconds", 0) if isinstance(trace, dict) else 0
    rows = [
        _row(index, event, base)
        for index, event in enumerate(events)
        if isinstance(event, dict)
        and event.get("ph") == "X"
        and (start := exact(event.get("ts"))) is not None
        and (duration := exact(event.get("dur"))) is not None
        and duration >= 0
        and base + start + duration <= 1 << 62
    ]
    on_threads = sorted(row["start"] for row in rows if row["cat"] in {*_CPU, *_CALLS, "python_function"})
    known = on_threads or sorted(row["start"] for row in rows if row["cat"] in _GPU)
    middle = known[(len(known) - 1) // 2] if known else 0
    rows = [row for row in rows if row["cat"] not in _GPU or abs(row["start"] - middle) < 7200 * 10**9]
    calls: dict[int, int] = {}
    for position, row in enumerate(rows):
        if row["cat"] in _CALLS and row["correlation"] > 0:
            calls.setdefault(row["correlation"], position)
    for row in rows:
        asked = row["cat"] in {*_WORK, "cuda_sync"} and row["correlation"] > 0
        row["call"] = calls.get(row["correlation"], MISSING) if asked else MISSING
    return rows


def found(trace: RankTrace) -> list[dict[str, Any]]:
    columns = {name: column.tolist() for name, column in trace.events.columns().items()}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for row in rows:
        for name in ("name", "collective", "group", "element_type"):
            row[name] = trace.names[row[name]] if row[name] != MISSING else None
    return rows


def exact(microseconds: Any) -> int | None:
    """Nanoseconds, or None."""
    if isinstance(microseconds, bool) or not isinstance(microseconds, int | Decimal | str | float):
        return None
    try:
        value = Decimal(microseconds)
    except ArithmeticError:
        return None
    return round(value * 1000) if value.is_finite() and abs(value) <= 2**52 else None


def _row(index: int, event: dict[str, Any], base: int) -> dict[str, Any]:
    category = str(event.get("cat")).lower()
    arguments = event.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    start = exact(event["ts"])
    duration = exact(event["dur"])
    assert start is not None
    assert duration is not None
    row: dict[str, Any] = {
        "index": index,
        "cat": category,
        "name": str(event.get("name", "")),
        "start": base + start,
        "stop": base + start + duration,
        "process": _lane(event.get("pid")),
        "thread": _lane(event.get("tid")),
    }
    for column, names, categories, bits in _NUMBERS:
        values = [_whole(arguments[name], bits) for name in names if name in arguments]
        here = categories is None or category in categories
        row[column] = next((value for value in values if here and value != MISSING), MISSING)
    for column, lane in (("device", "process"), ("stream", "thread")):
        if category in _GPU and row[column] == MISSING and isinstance(row[lane], int) and 0 <= row[lane] < 2**31:
            row[column] = row[lane]
    named = "Collective name" in arguments
    for column, name in (("collective", "Collective name"), ("group", "Process Group Name"), ("element_type", "dtype")):
        row[column] = str(arguments[name]) if named and name in arguments else None
    return row


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, str):
        value = int(value) if re.fullmatch("-?[0-9]+", value) else MISSING
    if isinstance(value, Decimal):
        value = int(value) if value == int(value) else MISSING
    if not isinstance(value, int):
        return MISSING
    return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else MISSING


def _lane(value: Any) -> int | str:
    """A number; of text without one the text."""
    if isinstance(value, str):
        number = re.search(r"(^|\s)(-?[0-9]+)$", value)
        return int(number[2]) if number else value
    return _whole(value, 64)


def check(trace: RankTrace, text: str | bytes) -> None:
    """Fail where the columns say anything else than the JSON."""
    texts: dict[int, str] = {}
    rows = expected(text)
    assert len(rows) == len(trace.events)
    for row, seen in zip(rows, found(trace), strict=True):
        for column, value in row.items():
            if column == "cat":
                continue
            if isinstance(value, str) and column in ("process", "thread"):
                # a text has one number, and no other text has it
                assert seen[column] < MISSING
                assert texts.setdefault(seen[column], value) == value
            else:
                assert seen[column] == value, (column, row)
