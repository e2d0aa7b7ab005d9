import io
import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.events import TraceEvents, WrittenSlice, lanes
from tests.runs.trace.perfetto import FAULTS, query

EPOCH = 1_700_000_000_000_000_000


def written(path: Path, *slices: tuple[int, int, str], origin: int = 0, track: str = "t") -> Path:
    """A file of slices, from an instant to another, on one track."""
    with open(path, "wb") as file:
        events = TraceEvents(file, origin)
        process = events.process(track)
        number = events.track(process, track)
        for start, stop, name in slices:
            events.slice(process, number, origin + start, origin + stop, name, "c", args={"key": name[:200]})
        events.close()
    return path


def test_nanoseconds_after_days_are_read_as_they_were_written(tmp_path: Path) -> None:
    instants = [0, 1, 999, 1001, 123_456_789, 86_400_000_000_001, 864_000_000_000_007]
    file = written(tmp_path / "t.json", *((at, at + 1, "a") for at in instants), origin=EPOCH)
    found, faults = query(file, "select ts, dur from slice order by ts", FAULTS)
    assert (found, faults) == ([[at, 1] for at in instants], [])


def test_hostile_names_are_only_names(tmp_path: Path) -> None:
    names = ['"}],"x":[', "</script>\x00\x1b[31m", "\ud800 \N{SNOWMAN}", "n" * 10_000]
    file = written(tmp_path / "t.json", *((i, i + 1, name) for i, name in enumerate(names)), track=names[0])
    shown = [event["name"] for event in json.loads(file.read_bytes())["traceEvents"]]
    assert shown[-4:] == [name[:200] for name in names]
    assert query(file, "select count(*) from slice", FAULTS) == [[[4]], []]


def test_an_arrow_back_in_time_and_a_counter_that_is_not_finite_are_neither_written_nor_counted() -> None:
    file = io.BytesIO()
    events = TraceEvents(file, 0)
    late, early, nothing = WrittenSlice(1, 2, 50, 60), WrittenSlice(1, 3, 0, 10), WrittenSlice(1, 3, 70, 70)
    for source, target in ((late, early), (early, nothing), (nothing, late)):
        events.arrow(source, target, "a", "c")
    assert events.written.flows == 0
    events.counter(1, 5, "memory", {"process": math.inf})
    events.counter(1, 5, "memory", {"process": 1.0, "spilled": math.nan})
    events.close()
    (event,) = json.loads(file.getvalue())["traceEvents"]
    assert event["args"] == {"process": 1.0}
    assert events.written.counters == 1
    # an empty file is valid
    file = io.BytesIO()
    TraceEvents(file, 0).close()
    assert json.loads(file.getvalue()) == {"displayTimeUnit": "ms", "traceEvents": []}


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(MISSING, 3)), max_size=15))
def test_no_two_intervals_of_a_lane_overlap_and_no_lane_is_too_many(rows):
    start, length, wanted = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    stop = start + length
    found = lanes(start, stop, wanted)
    for lane in np.unique(found):
        mine = sorted(zip(start[found == lane].tolist(), stop[found == lane].tolist(), strict=True))
        assert all(before[1] <= after[0] for before, after in pairwise(mine))
    stop = start + length + 1
    at_once = max((int(((start <= at) & (stop > at)).sum()) for at in start), default=0)
    assert len(np.unique(lanes(start, stop))) == at_once
    # an interval gets its preferred lane if that is free
    assert lanes(np.array([0, 0, 5, 6]), np.array([10, 5, 7, 8]), np.array([1, 0, 0, 0])).tolist() == [1, 0, 0, 2]
