import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.account import ACTIVITIES, place
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.timeline import (
    CLOCK_SLACK_NS,
    COLUMNS,
    FIRST_WIDTH_NS,
    MAX_BINS,
    ActivityFeed,
    ActivityStretches,
    Timeline,
    TimelineRecorder,
)
from dask_efficiency.accounts.wire.heartbeats import encode
from dask_efficiency.accounts.wire.snapshots import Snapshot, encode_not_measured
from dask_efficiency.accounts.worker.ledger import Ledger
from tests.strategies import SECOND


def stretch(start: int, stop: int, **ns: int) -> ActivityStretches:
    """One worker's time, ``stretch(0, 5, idle=5)``; ``idle_graph`` is a cause."""
    row = [ns.get(name.replace("-", "_").replace("/", "_"), 0) for name in COLUMNS]
    return ActivityStretches(np.array([start]), np.array([stop]), np.array([row]))


def sums(timeline: Timeline) -> dict[str, int]:
    return {name: sum(row) for name, row in timeline.activity.items()}


def recorded(*stretches: ActivityStretches, at: int = 0) -> TimelineRecorder:
    recorder = TimelineRecorder(at=at)
    for each in stretches:
        recorder.add(each)
    return recorder


def test_a_stretch_and_its_causes_are_spread_evenly_over_the_bins_that_they_touch() -> None:
    recorder = recorded(stretch(SECOND, 2 * SECOND, idle=400, thread_cpu=4000), at=SECOND)
    timeline = recorder.timeline(at=2 * SECOND)
    assert timeline == Timeline(FIRST_WIDTH_NS, SECOND, {"thread-cpu": (1000,) * 4, "idle": (100,) * 4})
    recorder = recorded(stretch(0, SECOND, idle=800, idle_graph=200, idle_parallelism=600))
    recorder.add(stretch(SECOND, 2 * SECOND, thread_noncpu=400, thread_noncpu_gil=400))
    timeline = recorder.timeline(at=2 * SECOND)
    assert timeline.activity == {"thread-noncpu": (0,) * 4 + (100,) * 4, "idle": (200,) * 4 + (0,) * 4}
    assert timeline.causes == {
        "thread-noncpu/gil": (0,) * 4 + (100,) * 4,
        "idle/graph": (50,) * 4 + (0,) * 4,
        "idle/parallelism": (150,) * 4 + (0,) * 4,
    }


def test_time_outside_of_the_timeline_is_left_out_and_its_end_cuts_a_bin_short() -> None:
    recorder = TimelineRecorder(at=SECOND)
    recorder.stop(at=2 * SECOND)
    recorder.add(stretch(0, SECOND, idle=7))
    recorder.add(stretch(0, 4 * SECOND, idle=4000))
    recorder.add(stretch(2 * SECOND, 3 * SECOND, idle=7))
    assert sums(recorder.timeline(at=2 * SECOND)) == {"idle": 1000}
    recorder = TimelineRecorder(at=0)
    recorder.stop(at=SECOND * 3 // 10)
    recorder.add(stretch(0, SECOND, idle=1000))
    timeline = recorder.timeline(at=SECOND * 3 // 10)
    assert timeline.activity == {"idle": (250, 50)}
    assert timeline.widths == (SECOND // 4, SECOND // 20)
    timeline = TimelineRecorder(at=5).timeline(at=5)
    assert (timeline.bins, timeline.widths, timeline.activity) == (0, (), {})


def test_days_have_a_bounded_number_of_bins_and_every_nanosecond() -> None:
    hour = 3600 * SECOND
    hours = (stretch(i * hour, (i + 1) * hour, idle=16 * hour - i, thread_cpu=i) for i in range(72))
    timeline = recorded(*hours).timeline(at=72 * hour)
    assert MAX_BINS / 2 <= timeline.bins <= MAX_BINS
    assert sum(timeline.widths) == 72 * hour
    assert sum(sums(timeline).values()) == 72 * 16 * hour
    assert sums(timeline)["thread-cpu"] == sum(range(72))


pieces = st.lists(st.tuples(st.integers(0, 10**13), st.integers(1, 10**12), st.integers(0, 10**13)), min_size=1)


@given(pieces)
def test_no_nanosecond_is_lost_however_often_neighbours_are_merged(given_pieces: list[tuple[int, int, int]]) -> None:
    end = max(start + length for start, length, _ in given_pieces)
    timeline = recorded(*(stretch(at, at + length, idle=ns) for at, length, ns in given_pieces)).timeline(at=end)
    assert timeline.bins <= MAX_BINS
    assert sum(sums(timeline).values()) == sum(ns for _, _, ns in given_pieces)
    assert all(ns >= 0 for row in timeline.activity.values() for ns in row)


@given(pieces)
def test_merged_bins_are_those_of_wider_bins(given_pieces: list[tuple[int, int, int]]) -> None:
    each = [stretch(start, start + length, idle=ns) for start, length, ns in given_pieces]
    together = [np.concatenate([getattr(one, name) for one in each]) for name in ("start", "stop", "ns")]
    end = max(start + length for start, length, _ in given_pieces)
    one, other = recorded(ActivityStretches(*together)).timeline(at=end), recorded(*each).timeline(at=end)
    assert one.bin_ns == other.bin_ns
    for name, row in one.activity.items():
        # both round at the edges of bins, one at more of them
        assert row == pytest.approx(other.activity[name], abs=len(given_pieces) + 1)


class Cluster:
    """A cluster of idle workers by a clock of its own."""

    def __init__(self) -> None:
        self.ledger = ClusterLedger(at=0)
        self.ledger.work.set(True, at=0)
        self.feed = ActivityFeed()
        self.recorder = TimelineRecorder(at=0)

    def joins(self, address: str, *, at: int, nthreads: int = 2) -> None:
        self.ledger.worker_joined(address, address, nthreads, at=at)

    def reports(self, address: str, *, at: int, since: int | None = None, way: int = 0) -> None:
        """Its snapshot of an instant comes so much later; since when it is metered, if not since it joined."""
        presence = self.ledger.present[address]
        balance = Ledger(presence.nthreads, at=presence.joined if since is None else since).balance(at=at)
        self.ledger.receive(address, encode(Snapshot("a", at, balance)), at=at + way)

    def follow(self, *, at: int = 10 * SECOND) -> ActivityStretches:
        stretches = self.feed.read(self.ledger.present.values(), at=at)
        self.recorder.add(stretches)
        return stretches

    def timeline(self, *, at: int) -> Timeline:
        return self.recorder.timeline(at=at, uncovered=self.feed.uncovered(at=at))


def test_every_bin_adds_up_to_the_threads_that_were_there_and_no_time_is_read_twice() -> None:
    cluster = Cluster()
    cluster.joins("x", at=0)
    cluster.joins("y", at=SECOND, nthreads=3)
    for tenths in range(5, 31, 5):
        cluster.reports("x", at=tenths * SECOND // 10)
        if tenths > 10:
            cluster.reports("y", at=tenths * SECOND // 10 - 7)
        cluster.follow()
    timeline = cluster.timeline(at=3 * SECOND)
    threads = [2] * 4 + [5] * 8
    assert timeline.activity.keys() == {"idle"}
    assert timeline.activity["idle"] == pytest.approx([n * FIRST_WIDTH_NS for n in threads], abs=10)
    cluster = Cluster()
    cluster.joins("x", at=0)
    cluster.reports("x", at=SECOND)
    assert cluster.follow().ns[:, : len(ACTIVITIES)].sum() == 2 * SECOND
    assert len(cluster.follow().start) == 0


def test_a_silent_worker_is_unmeasured_and_one_that_reported_just_before_goes_on_as_it_was() -> None:
    cluster = Cluster()
    cluster.joins("silent", at=0)
    cluster.joins("heard", at=0)
    cluster.reports("heard", at=SECOND - CLOCK_SLACK_NS)
    cluster.follow()
    timeline = cluster.timeline(at=SECOND)
    assert sums(timeline) == {"idle": 2 * SECOND, "unmeasured": 2 * SECOND}
    assert sum(map(sum, timeline.causes.values())) == 2 * SECOND


def test_a_worker_that_vanished_is_lost_until_it_was_removed_and_then_forgotten() -> None:
    cluster = Cluster()
    cluster.joins("x", at=0)
    cluster.reports("x", at=SECOND)
    cluster.follow()
    cluster.ledger.worker_left("x", at=2 * SECOND)
    cluster.follow()
    cluster.ledger.close_departed(at=9 * SECOND)
    cluster.follow()
    assert sums(cluster.timeline(at=10 * SECOND)) == {"idle": 2 * SECOND, "lost-worker": 2 * SECOND}
    assert len(cluster.feed._read) == 0


def test_the_causes_of_a_worker_are_spread_over_the_time_in_which_they_grew() -> None:
    cluster = Cluster()
    cluster.joins("x", at=0, nthreads=1)
    presence = cluster.ledger.present["x"]
    for second, cause in ((1, "idle/graph"), (2, "idle/scheduler")):
        cluster.reports("x", at=second * SECOND)
        presence.account[place("cause_activity", "idle/unknown")] = 0
        presence.account[place("cause_activity", cause)] = SECOND
        cluster.follow()
    timeline = cluster.timeline(at=2 * SECOND)
    assert timeline.causes == {
        "idle/scheduler": (0,) * 4 + (FIRST_WIDTH_NS,) * 4,
        "idle/graph": (FIRST_WIDTH_NS,) * 4 + (0,) * 4,
    }


def ahead(cluster: Cluster, at: int) -> None:
    """A worker whose time seems to be 50 ms later than it is, by what it reports at an instant."""
    # Its meter was there before the scheduler knew, so that its first snapshot has when it began.
    cluster.joins("x", at=SECOND // 2)
    cluster.reports("x", at=SECOND, since=SECOND // 4, way=SECOND // 20)
    cluster.reports("x", at=at, since=SECOND // 4)


def test_no_time_is_later_than_now_where_a_worker_s_first_snapshot_travelled_slowly() -> None:
    cluster = Cluster()
    opened, reported, closed = SECOND * 11 // 10, SECOND * 5 // 4, SECOND * 13 // 10 - 7
    cluster.recorder = TimelineRecorder(at=opened)
    ahead(cluster, reported)
    assert cluster.follow(at=reported).stop == reported
    cluster.recorder.stop(at=closed)
    cluster.reports("x", at=2 * SECOND, since=SECOND // 4)
    cluster.follow(at=2 * SECOND)
    timeline = cluster.timeline(at=closed)
    assert sums(timeline) == {"idle": pytest.approx(2 * (closed - opened), abs=10)}


def test_time_ahead_of_the_clock_is_read_when_it_is_past() -> None:
    cluster = Cluster()
    ahead(cluster, 2 * SECOND)
    cluster.follow(at=SECOND // 5)  # nothing of it is past
    cluster.follow(at=2 * SECOND)
    early = sums(cluster.timeline(at=2 * SECOND))
    assert early["idle"] < 2 * (2 * SECOND - SECOND // 4)
    cluster.follow(at=2 * SECOND + SECOND // 20)
    assert len(cluster.follow().start) == 0
    assert sums(cluster.timeline(at=2 * SECOND + SECOND // 20)) == {"idle": 2 * (2 * SECOND - SECOND // 4)}


def test_a_worker_that_left_is_forgotten_when_all_of_its_time_is_past() -> None:
    cluster = Cluster()
    ahead(cluster, 2 * SECOND)
    cluster.follow(at=SECOND)
    cluster.ledger.worker_left("x", at=2 * SECOND)
    cluster.ledger.close_departed(at=9 * SECOND)
    cluster.follow(at=2 * SECOND - SECOND // 20)
    assert len(cluster.feed._read) == 1
    cluster.follow(at=9 * SECOND)
    assert sums(cluster.timeline(at=9 * SECOND)) == {"idle": 2 * (2 * SECOND - SECOND // 4)}
    assert len(cluster.feed._read) == 0


def test_a_worker_without_a_meter_is_unmeasured_all_along() -> None:
    cluster = Cluster()
    cluster.joins("x", at=0)
    cluster.ledger.receive("x", encode_not_measured("no package"), at=SECOND)
    cluster.follow()
    cluster.ledger.accrue(at=2 * SECOND)
    cluster.follow()
    assert cluster.timeline(at=2 * SECOND).activity == {"unmeasured": (2 * FIRST_WIDTH_NS,) * 8}


def test_a_timeline_can_be_read_and_goes_on() -> None:
    recorder = recorded(stretch(0, SECOND, idle=1000))
    early = recorder.timeline(at=SECOND, uncovered=stretch(0, SECOND, unmeasured=8))
    recorder.add(stretch(SECOND, 2 * SECOND, idle=1000))
    late = recorder.timeline(at=2 * SECOND)
    assert (sums(early), sums(late)) == ({"idle": 1000, "unmeasured": 8}, {"idle": 2000})
    assert late.activity["idle"][:4] == early.activity["idle"]
    assert (late.bin_ns, late.causes) == (early.bin_ns, early.causes)
