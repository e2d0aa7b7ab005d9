from __future__ import annotations

import io
import json
import math
from pathlib import Path

from dask_efficiency.runs.trace.events import Place, TraceEvents
from tests.runs.trace.perfetto import FAULTS, query

EPOCH = 1_700_000_000_000_000_000


def test_an_empty_file_is_valid() -> None:
    file = io.BytesIO()
    TraceEvents(file, 0).close()
    assert json.loads(file.getvalue()) == {"displayTimeUnit": "ms", "traceEvents": []}


def test_nanoseconds_after_days_are_read_as_they_were_written(tmp_path: Path) -> None:
    instants = [0, 1, 999, 1001, 123_456_789, 86_400_000_000_001, 864_000_000_000_007]
    with open(tmp_path / "t.json", "wb") as file:
        events = TraceEvents(file, EPOCH)
        process = events.process("p")
        track = events.track(process, "t")
        for at in instants:
            events.slice(process, track, EPOCH + at, EPOCH + at + 1, "a", "c")
        events.close()
    found, faults = query(tmp_path / "t.json", "select ts, dur from slice order by ts", FAULTS)
    assert found == [[at, 1] for at in instants]
    assert faults == []


def test_hostile_names_are_only_names(tmp_path: Path) -> None:
    names = ['"}],"x":[', "</script>\x00\x1b[31m", "\ud800 \N{SNOWMAN}", "n" * 10_000]
    with open(tmp_path / "t.json", "wb") as file:
        events = TraceEvents(file, 0)
        process = events.process(names[0])
        track = events.track(process, names[1])
        for i, name in enumerate(names):
            events.slice(process, track, i, i + 1, name, "c", args={"key": name[:200]})
        events.close()
    written = [event["name"] for event in json.loads((tmp_path / "t.json").read_bytes())["traceEvents"]]
    assert written[-4:] == [name[:200] for name in names]
    found, faults = query(tmp_path / "t.json", "select count(*) from slice", FAULTS)
    assert found == [[4]]
    assert faults == []


def test_an_arrow_joins_its_two_slices_and_no_others(tmp_path: Path) -> None:
    with open(tmp_path / "t.json", "wb") as file:
        events = TraceEvents(file, 0)
        process = events.process("p")
        one, other = events.track(process, "one"), events.track(process, "other")
        source = events.slice(process, one, 0, 100, "source", "c")
        events.slice(process, one, 100, 200, "next", "c")
        events.slice(process, other, 0, 100, "earlier", "c")
        target = events.slice(process, other, 100, 200, "target", "c")
        events.arrow(source, target, "transfer", "kind")
        events.close()
    names = "select a.name, b.name from flow join slice a on a.id = slice_out join slice b on b.id = slice_in"
    found, faults = query(tmp_path / "t.json", names, FAULTS)
    assert found == [["source", "target"]]
    assert faults == []


def test_an_arrow_back_in_time_is_neither_written_nor_counted() -> None:
    events = TraceEvents(io.BytesIO(), 0)
    late, early, nothing = Place(1, 2, 50, 60), Place(1, 3, 0, 10), Place(1, 3, 70, 70)
    for source, target in ((late, early), (early, nothing), (nothing, late)):
        events.arrow(source, target, "a", "c")
    assert events.written.flows == 0


def test_a_figure_that_is_no_number_is_left_out() -> None:
    file = io.BytesIO()
    events = TraceEvents(file, 0)
    events.counter(1, 5, "memory", {"process": 1.0, "spilled": math.nan})
    events.counter(1, 5, "memory", {"process": math.inf})
    events.close()
    (event,) = json.loads(file.getvalue())["traceEvents"]
    assert event["args"] == {"process": 1.0}
    assert events.written.counters == 1
