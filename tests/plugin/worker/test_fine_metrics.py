from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.metered import SPILL_LABELS, Metered
from dask_efficiency.accounts.rows import MAX_APART as MAX_METERED
from dask_efficiency.accounts.rows import MAX_NAMED as MAX_LEFT_OUT
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.plugin.worker.fine_metrics import (
    MAX_PREFIX_LENGTH,
    FineMetrics,
    OutsideMetrics,
    ShuffleWatch,
    SpillMetrics,
    left_out,
)
from tests.payloads import through_msgpack


def totals(**by_label: float) -> defaultdict:
    """Digests of one span and prefix."""
    found = defaultdict(float)
    for label, value in by_label.items():
        found["execute", "span", "inc", label.replace("_", "-"), "seconds"] = value
    return found


class Metrics(FineMetrics):
    """All that is read of some digests."""

    def __init__(self, digests_total: defaultdict) -> None:
        super().__init__(digests_total)
        self.outside = OutsideMetrics(digests_total).gained
        self._spilled = SpillMetrics(digests_total)

    def spill(self, span: str, prefix: str) -> int:
        return sum(self._spilled.since(span, prefix))


def metrics(**by_label: float) -> tuple[defaultdict, Metrics]:
    found = totals(**by_label)
    return found, Metrics(found)


@pytest.mark.parametrize(
    ("key", "asked", "counts"),
    [
        (("execute", "span", "inc", "thread-cpu", "seconds"), ("span", "inc"), False),
        (("execute", "span", "sum", "disk-read", "seconds"), ("span", "inc"), False),
        (("execute", None, "inc", "disk-read", "seconds"), ("span", "inc"), False),
        (("execute", None, "inc", "disk-read", "seconds"), ("", "inc"), True),  # as the ledger has it
        (("execute", "span", "x" * 300, "disk-read", "seconds"), ("span", "x" * MAX_PREFIX_LENGTH), True),  # likewise
        *((("execute", "span", "inc", label, "seconds"), ("span", "inc"), True) for label in SPILL_LABELS),
        *((("execute", "span", "inc", label, "bytes"), ("span", "inc"), False) for label in SPILL_LABELS),
        *((("execute", "span", "inc", label, "count"), ("span", "inc"), False) for label in SPILL_LABELS),
    ],
)
def test_spilling_of_a_span_and_prefix_is_the_seconds_of_its_labels_since_the_last_call(key, asked, counts):
    digests_total, digests = metrics(disk_read=1.0)
    assert digests.spill(*asked) == 0
    digests_total[key] += 0.25
    assert digests.spill(*asked) == 250_000_000 * counts
    assert digests.spill(*asked) == 0


def test_digests_from_before_the_meter_do_not_count_and_a_fall_takes_nothing_back():
    digests_total = totals(disk_read=100.0, io=7.0)
    digests_total["gather-dep", "network", "seconds"] = 50.0
    digests = Metrics(digests_total)
    for fallen in (0.0, 0.5):
        digests_total["execute", "span", "inc", "disk-read", "seconds"] -= fallen
        digests_total["execute", "span", "inc", "io", "seconds"] -= fallen
        assert digests.spill("span", "inc") == 0
        assert (digests.outside(), digests.details()) == ({"gather-dep": 0}, {"in task: io": 0})
    # Also where a label joins a group that was there before.
    digests_total["execute", "span", "inc", "compress", "seconds"] = 1.0
    assert digests.spill("span", "inc") == 10**9


IN_TASK = ("execute", "span", "inc")
OF_UPSTREAM = ["thread-cpu", "thread-noncpu", "executor", "other", "failed", "memory-read"]


@pytest.mark.parametrize(
    ("added", "outside", "details"),
    [
        (
            {
                ("gather-dep", "network", "seconds"): 1.0,
                ("gather-dep", "deserialize", "seconds"): 0.5,
                ("gather-dep", "network", "bytes"): 1e6,
                ("get-data", "disk-read", "seconds"): 2.0,
                ("memory-monitor", "disk-write", "seconds"): 3.0,
                "tick-duration": 99.0,
                ("latency", "seconds"): 99.0,
            },
            {"gather-dep": 1_500_000_000, "get-data": 2 * 10**9, "spill by the memory manager": 3 * 10**9},
            {},
        ),
        (
            {
                (*IN_TASK, "io", "seconds"): 0.4,
                ("execute", "span", "sum", "io", "seconds"): 0.2,
                ("execute", "span", "sum", ("a", "tuple"), "seconds"): 1.0,
            },
            {},
            {"in task: io": 600_000_000, "in task: ('a', 'tuple')": 10**9},
        ),
        ({(*IN_TASK, label, "seconds"): 1.0 for label in OF_UPSTREAM}, {}, {}),
    ],
    ids=["outside the slots, by activity", "users' labels, over prefixes", "labels of upstream, in buckets"],
)
def test_seconds_that_are_in_no_bucket_are_outside_or_details(added, outside, details):
    digests_total, digests = metrics()
    digests_total.update(added)
    assert (digests.outside(), digests.details(), digests.spill("span", "inc")) == (outside, details, 0)


def test_labels_of_users_are_bounded_in_number_and_length():
    digests_total, digests = metrics()
    for i in range(MAX_METERED + 5):
        digests_total["execute", "span", "inc", f"label {i}", "seconds"] = 1.0
    assert len(digests.details()) == MAX_METERED + 1
    assert digests.details()[f"in task: {OTHER}"] == 5 * 10**9
    digests = FineMetrics(totals(**{"x" * 500: 0.0}))
    assert [len(metered.label) for metered in digests.gained()] == [200]


def test_bytes_counts_seconds_of_users_and_the_background_of_shuffles_are_metered():
    digests_total, digests = metrics(io=0.4, disk_read=7.0)
    digests_total["execute", "span", "inc", "io", "seconds"] += 0.2
    digests_total["execute", "span", "inc", "disk-read", "seconds"] += 1.0  # is in a bucket
    digests_total["execute", "span", "inc", "disk-read", "bytes"] += 1e6
    digests_total["execute", None, "inc", "rows", "count"] += 3.0
    digests_total["execute", "span", "unpack", "p2p-get-output-cpu", "seconds"] += 0.5
    digests_total["p2p", "span", "foreground", "get-output-cpu", "seconds"] += 0.5  # the same once more
    digests_total["p2p", "span", "background-comms", "send", "seconds"] += 2.0
    digests_total["memory-monitor", "disk-write", "bytes"] += 5e6
    digests_total["latency", "seconds"] += 1.0
    assert {metered: value for metered, value in digests.gained().items() if value} == {
        Metered("execute", "span", "inc", "io", "seconds"): 200_000_000,
        Metered("execute", "span", "inc", "disk-read", "bytes"): 1_000_000,
        Metered("execute", "", "inc", "rows", "count"): 3,
        Metered("execute", "span", "unpack", "p2p-get-output-cpu", "seconds"): 500_000_000,
        Metered("p2p", "span", "background-comms", "send", "seconds"): 2_000_000_000,
        Metered("memory-monitor", "", "", "disk-write", "bytes"): 5_000_000,
    }
    assert digests.details() == {"in task: io": 200_000_000}


def test_a_label_that_counted_no_number_stays_as_it_was_and_costs_no_other_one():
    digests_total, digests = metrics(loss=1.0, io=0.0)
    loss, io, rows = ((*IN_TASK, *label) for label in (("loss", "seconds"), ("io", "seconds"), ("rows", "count")))
    digests_total[loss] += 2.0
    digests_total[rows] += 3.0
    for value in (math.nan, math.inf, 10**400, "1", np.array([1.0, 2.0])):
        assert digests.details() == {"in task: loss": 2 * 10**9, "in task: io": round(digests_total[io] * 1e9)}
        digests_total[loss] = value
        digests_total[io] += 0.5
    digests_total[loss] = 5.0  # upstream's sum never comes back from NaN, and has lost what was small beside 1e18
    digests_total[rows] += 1.0
    digests_total["get-data", "network", "seconds"] = -math.inf
    assert digests.details() == {"in task: loss": 2 * 10**9, "in task: io": 2_500_000_000}
    assert digests.outside() == {"get-data": 0}
    assert digests.gained()[Metered(*rows)] == 4
    what = "counted what is no number of seconds, or one that is too large"
    where = ("loss", "tasks of inc"), ("network", "get-data")
    assert left_out(digests, digests) == [f"label {name} {what}, in {at}: it is left out" for name, at in where]


def test_a_time_in_the_wrong_unit_and_a_sum_beyond_what_travels_are_left_out():
    digests_total, digests = metrics(read=0.0)
    digests_total[(*IN_TASK, "read", "seconds")] += time.time_ns()
    digests_total[(*IN_TASK, "rows", "count")] += 2.0**61
    assert digests.gained()[Metered(*IN_TASK, "rows", "count")] == 1 << 61
    digests_total[(*IN_TASK, "rows", "count")] *= 4
    assert set(digests.gained().values()) == {0, 1 << 61}
    assert len(left_out(digests)) == 2


def test_the_sum_of_labels_of_one_name_is_bounded_too():
    digests_total, digests = metrics()
    for i in range(3 * MAX_METERED):
        digests_total["execute", None, f"prefix {i}", "rows", "count"] = 2.0**61
        digests_total["gather-dep", f"label {i}", f"unit {i}"] = 1.0
        digests_total["p2p", None, "background-comms", f"label {i}", f"unit {i}"] = 1.0
    gained = digests.gained()
    assert max(gained.values()) == gained[Metered("execute", "", "", OTHER, "count")] == 1 << 62
    assert len(gained) <= MAX_METERED + 10


def test_labels_that_are_left_out_are_named_once_and_few():
    digests_total, digests = metrics()
    for i in range(100):
        digests_total["execute", f"span {i}", "inc", "loss", "count"] = math.nan
        digests_total["execute", None, "inc", f"label {i}\ud800", "count"] = math.nan
    digests.gained()
    found = left_out(digests, OutsideMetrics(digests_total))
    assert len(found) == len(set(found)) == MAX_LEFT_OUT
    assert through_msgpack(found) == tuple(found)


keys = st.tuples(
    st.sampled_from(["execute"]),
    st.sampled_from([None, "span"]),
    st.sampled_from(["inc", "sum"]),
    st.sampled_from(["disk-read", "compress", "thread-cpu", "io"]),
    st.sampled_from(["seconds", "bytes"]),
)


@given(st.dictionaries(keys, st.integers(0, 5)), st.lists(st.tuples(keys, st.integers(0, 5), st.booleans())))
def test_all_calls_together_give_the_gain_since_the_beginning(before, later):
    digests_total = defaultdict(float, {key: float(value) for key, value in before.items()})
    digests = Metrics(digests_total)
    found, gained, io = 0, 0, 0
    for key, value, look in later:
        digests_total[key] += value
        gained += value * (key[3] in SPILL_LABELS and key[4] == "seconds" and key[1:3] == ("span", "inc"))
        io += value * (key[3:] == ("io", "seconds"))
        if look:
            found += digests.spill("span", "inc")
    found += digests.spill("span", "inc")
    assert found == gained * 10**9
    assert digests.details().get("in task: io", 0) == io * 10**9


def test_reading_back_and_writing_are_distinguished():
    digests_total = totals(disk_read=1.0, disk_write=1.0)
    digests = SpillMetrics(digests_total)
    assert digests.since("span", "inc") == (0, 0)
    for label in ("disk-read", "deserialize", "decompress"):
        digests_total["execute", "span", "inc", label, "seconds"] += 0.25
    for label in ("disk-write", "serialize", "compress"):
        digests_total["execute", "span", "inc", label, "seconds"] += 0.5
    digests_total["execute", "span", "inc", "disk-read", "bytes"] += 1e9
    digests_total["execute", "span", "other", "disk-read", "seconds"] += 7
    assert digests.since("span", "inc") == (750_000_000, 1_500_000_000)
    assert digests.since("span", "inc") == (0, 0)
    assert digests.since("span", "never") == (0, 0)


RECEIVE, FLUSH = (Metered("p2p", "", "background-comms", label, "seconds") for label in ("receive", "flush"))


async def shuffle_receive(shuffle_id: str, run_id: int, data: Any) -> dict[str, str]:
    await asyncio.sleep(0.02)
    if data is None:
        raise ValueError("of the shuffle")
    return {"status": "OK"}


async def shuffle_inputs_done(shuffle_id: str, run_id: int) -> None:
    await asyncio.sleep(0.01)


def worker(**handlers: Any) -> Any:
    return SimpleNamespace(handlers=handlers)


def test_receiving_and_flushing_of_a_shuffle_are_timed_even_if_they_fail_and_go_on_as_ever() -> None:
    own = worker(shuffle_receive=shuffle_receive, shuffle_inputs_done=shuffle_inputs_done)
    watch = ShuffleWatch(own)
    watch.start()
    began = time.monotonic_ns()
    assert asyncio.run(own.handlers["shuffle_receive"](shuffle_id="s", run_id=1, data=b"x")) == {"status": "OK"}
    with pytest.raises(ValueError, match="of the shuffle"):
        asyncio.run(own.handlers["shuffle_receive"](shuffle_id="s", run_id=1, data=None))
    asyncio.run(own.handlers["shuffle_inputs_done"](shuffle_id="s", run_id=1))
    assert 2 * 19_000_000 <= watch.metered()[RECEIVE] <= time.monotonic_ns() - began
    assert 9_000_000 <= watch.metered()[FLUSH] <= time.monotonic_ns() - began
    watch.stop()
    assert own.handlers["shuffle_receive"] is shuffle_receive
    assert own.handlers["shuffle_inputs_done"] is shuffle_inputs_done


def test_a_watch_waits_for_the_worker_to_take_part_in_shuffles_and_begins_once() -> None:
    own = worker()
    watch = ShuffleWatch(own)
    watch.start()
    own.handlers.update(shuffle_receive=shuffle_receive, shuffle_inputs_done=shuffle_inputs_done)
    watch.start()
    watched = dict(own.handlers)
    assert watched["shuffle_receive"] is not shuffle_receive
    watch.start()
    assert own.handlers == watched
