import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import Breakdown
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.accounts.metered import SECONDS
from dask_efficiency.report.findings import find
from dask_efficiency.report.metered import own_labels, shuffle_times, transfer_times
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.sections.metered import labels, moved, shuffles
from dask_efficiency.report.values import Amount, MeteredRow, ProfileRow
from tests.report.samples import causes, report_of, seconds

SECOND = 1_000_000_000


def counted(*rows: tuple[str, str, str, str, float], worker: str = "a") -> tuple[MeteredRow, ...]:
    """Rows of context, prefix, label, unit and value."""
    return tuple(
        MeteredRow(worker, context, "", prefix, label, unit, value) for context, prefix, label, unit, value in rows
    )


def with_rows(*rows: MeteredRow, **prefixes: dict[str, int]) -> EfficiencyReport:
    by_prefix = {prefix.replace("_", "-"): Breakdown(row) for prefix, row in prefixes.items()}
    return report_of(seconds(thread_cpu=10), metered=rows, by_prefix=by_prefix)


SHUFFLE = counted(
    ("execute", "shuffle-transfer", "p2p-shard-partition-cpu", "seconds", 1.0),
    ("execute", "shuffle-transfer", "p2p-shard-partition-noncpu", "seconds", 0.5),
    ("execute", "shuffle-transfer", "p2p-comms-limiter", "seconds", 0.25),
    ("execute", "shuffle-transfer", "p2p-comms-limiter", "count", 9),
    ("execute", "unpack", "p2p-get-output-noncpu", "seconds", 2.0),
    ("execute", "unpack", "p2p-disk-read", "bytes", 30e6),
    ("execute", "unpack", "p2p-disk-read", "count", 4),
    ("p2p", "background-comms", "send", "seconds", 3.0),
    ("p2p", "background-comms", "idle", "seconds", 99.0),
    ("p2p", "background-comms", "process", "seconds", 0.1),
    ("p2p", "background-comms", "process", "bytes", 33e6),
    ("p2p", "background-comms", "process", "count", 12),
    ("p2p", "background-comms", "receive", "seconds", 0.5),
    ("p2p", "background-disk", "disk-write", "seconds", 0.4),
    ("p2p", "background-disk", "disk-write", "bytes", 3.0),  # of arrays Dask counts none
    ("p2p", "background-disk", "process", "bytes", 31e6),
    ("p2p", "background-disk", "disk-write", "count", 7),
    ("p2p", "background-comms", "flush", "seconds", 0.2),
) + counted(("p2p", "background-comms", "flush", "seconds", 0.7), worker="b")


def shuffled() -> EfficiencyReport:
    return with_rows(
        *SHUFFLE,
        shuffle_transfer={"thread-cpu": SECOND, "thread-noncpu": SECOND},
        shuffle_barrier={"thread-noncpu": SECOND // 2},
        unpack={"thread-noncpu": 2 * SECOND, "overhead": SECOND},
        inc={"thread-cpu": 9 * SECOND},
    )


def test_a_shuffle_is_listed_by_phase_and_other_work_of_its_tasks_is_the_rest() -> None:
    times = shuffle_times(shuffled().metered, shuffled().by_prefix)
    assert times is not None
    held = {"shard": 1.5, "wait for room to send": 0.25, "barrier": 0.5, "unpack": 2.0, "rest": 1.25}
    assert times.held_ns == {phase: took * SECOND for phase, took in held.items()}
    assert times.background == {"send": 3.1, "receive": 0.5, "disk": 0.4}
    assert (times.sent, times.written, times.read) == (Amount(33e6, 12), Amount(31e6, 7), Amount(30e6, 4))
    assert times.at_barriers == {"a": 0.2, "b": 0.7}
    section = shuffles(shuffled())
    assert section.lines == (
        "sent 31.5 MiB in 12 messages, wrote 29.6 MiB in 7 pieces to disk and read 28.6 MiB",
        "at barriers all others waited for worker b, which was still sending for 700 ms: worker a for 500 ms",
    )
    assert section.rows[0] == ("shard", "in tasks", "1.5 s")
    assert section.rows[-1] == ("disk", "in the background", "400 ms")
    frame = shuffled().to_frame("metered")
    assert list(frame.columns) == ["worker", "context", "span", "prefix", "label", "unit", "value"]
    assert frame.groupby(["worker", "label"]).value.sum()["b", "flush"] == 0.7
    without = with_rows(*counted(("execute", "inc", "io", "seconds", 1.0)))
    assert shuffle_times(without.metered, without.by_prefix) is None
    assert not shuffles(without).blocks


_buckets = st.sampled_from(["thread-cpu", "thread-noncpu", "overhead", "failed", "cancelled"])


@given(st.dictionaries(_buckets, st.integers(0, 10 * SECOND)))
def test_phases_add_up_to_the_time_held_by_tasks_of_shuffles_for_any_rows(held: dict[str, int]) -> None:
    report = with_rows(*SHUFFLE, shuffle_transfer=held, shuffle_barrier=held, unpack=held)
    times = shuffle_times(report.metered, report.by_prefix)
    assert times is not None
    assert sum(times.held_ns.values()) == 3 * sum(held.values())


def test_bytes_that_moved_are_listed_by_way() -> None:
    data = {"spilled": Amount(3 * 2**20, 1), "received": Amount(5, 1200)}
    assert moved(report_of(moved=data)).rows == (("spilled", "3.0 MiB", "1"), ("received", "5 B", "1,200"))


def sleeping(label_seconds: float) -> EfficiencyReport:
    """A report of which 8 s are a sleep, by tasks with labels."""
    stack = (Frame("load", "etl.py", 12),)
    return report_of(
        seconds(thread_cpu=2, thread_noncpu=8),
        cluster_seconds=10.0,
        by_prefix={"load": seconds(thread_cpu=2, thread_noncpu=8)},
        causes_by_worker={"w0": causes(**{"thread-noncpu/sleep": 8})},
        causes_by_prefix={"load": causes(**{"thread-noncpu/sleep": 8})},
        profile=(ProfileRow("thread-noncpu", "sleep", "load", stack, 1),),
        metered=counted(
            ("execute", "load", "download", "seconds", label_seconds),
            ("execute", "load", "download", "bytes", 99.0),
            ("execute", "load", "parse", "seconds", 1.0),
            ("execute", "sum", "io", "seconds", 99.0),
        ),
    )


@pytest.mark.parametrize(("label_seconds", "label"), [(8.5, True), (7.5, True), (7.0, False), (0.0, False)])
def test_a_finding_on_waiting_names_the_label_that_covers_nearly_all_of_its_time(label_seconds, label):
    (found,) = (one for one in find(sleeping(label_seconds)) if one.kind == "thread-noncpu/sleep")
    assert found.where == "`load`, etl.py:12" + ", in your label download" * label


def test_spilling_is_listed_with_the_bytes_read_back() -> None:
    data = {"spilled": Amount(2**30, 4), "read-back": Amount(3 * 2**30, 12)}
    spilling = report_of(seconds(thread_cpu=10, spill=30), cluster_seconds=10.0, moved=data)
    (found,) = (one for one in find(spilling) if one.kind == "spill")
    assert found.where == "1.0 GiB spilled, 3.0 GiB read back"
    assert found.advice == "Persist less, or use results at once: 1.0 GiB spilled, 3.0 GiB read back (3 times)."


def test_users_own_labels_are_listed_by_prefix_seconds_first_and_none_of_dasks() -> None:
    report = with_rows(
        *SHUFFLE,
        *counted(
            ("execute", "sum", "rows", "count", 5.0),
            ("execute", "inc", "io", "seconds", 1.0),
            ("execute", "sum", "io", "seconds", 2.0),
            ("execute", "sum", "disk-read", "bytes", 2.0),
        ),
        *counted(("execute", "inc", "io", "seconds", 3.0), worker="b"),
    )
    assert list(own_labels(report.metered).items()) == [
        (("io", "seconds", "inc"), 4.0),
        (("io", "seconds", "sum"), 2.0),
        (("rows", "count", "sum"), 5.0),
    ]
    assert labels(report).rows == (("io", "inc", "4.0 s"), ("io", "sum", "2.0 s"), ("rows", "sum", "5 count"))


def test_transfers_are_divided_into_waiting_and_the_work_on_either_side() -> None:
    def row(worker: str, context: str, label: str, value: float) -> MeteredRow:
        return MeteredRow(worker, context, "", "", label, SECONDS, value)

    rows = (
        *(row("a", "gather-dep", "network", 2.5), row("b", "gather-dep", "network", 1.0)),
        *(row("a", "gather-dep", "deserialize", 3.0), row("a", "gather-dep", "decompress", 0.02)),
        *(row("b", "get-data", "serialize", 4.0), row("b", "get-data", "offload", 9.0)),
        row("b", "memory-monitor", "serialize", 7.0),
        MeteredRow("a", "get-data", "", "", "memory-read", "count", 3.0),
    )
    assert transfer_times(rows) == {
        "receiving": {"waiting for the other side and the network": 3.5, "decompressing": 0.02, "deserializing": 3.0},
        "sending": {"serializing": 4.0},
    }
    assert transfer_times(()) == {}
    assert moved(report_of(seconds(thread_cpu=1.0), metered=rows)).lines == (
        "workers, receiving results: waiting for the other side and the network 3.5 s, deserializing 3.0 s",
        "workers, sending results: serializing 4.0 s",
    )
