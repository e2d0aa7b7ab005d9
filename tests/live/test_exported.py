"""Few workers and prefixes have series of their own, seldom others, and no series falls or jumps."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import FINALIZED, Bucket
from dask_efficiency.accounts.cluster.cluster import RECENT_NS, ClusterLedger
from dask_efficiency.accounts.cluster.cluster import RECENT_NS as CHOOSE_NS
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.wire.heartbeats import encode
from dask_efficiency.accounts.wire.snapshots import Snapshot, encode_not_measured
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.live.exported import EXTREMES, ExportedPrefixes, ExportedWorkers

SECOND = 1_000_000_000


class Cluster:
    """Workers of one thread, which are useful for a share of their time."""

    def __init__(self, workers: int) -> None:
        self.ledger = ClusterLedger(at=0)
        self.at = 0
        self.exported = ExportedWorkers()
        self.names = [f"w{i:03}" for i in range(workers)]
        self._ledgers = {name: Ledger(1, at=0) for name in self.names}
        self._seq = 0
        for name in self.names:
            self.ledger.worker_joined(name, name, 1, at=0)

    def run(self, useful: dict[str, float], seconds: float = CHOOSE_NS / 1e9) -> None:
        """Work goes on; workers that are not named have none to do, nor anything to say."""
        began, self.at = self.at, self.at + round(seconds * SECOND)
        self._seq += 1
        self.ledger.work.set(True, at=began)
        for name, share in useful.items():
            ledger = self._ledgers[name]
            ledger.reserve("task", "task", at=began)
            hold = ledger.release("task", at=self.at)
            assert hold is not None
            ledger.finalize(hold, Outcome.SUCCEEDED, cpu=round(share * hold.ns), wall=hold.ns)
            if name in self.ledger.present:
                self.ledger.receive(name, encode(Snapshot(name, self._seq, ledger.balance(at=self.at))), at=self.at)

    def now(self, at_most: int = 25) -> set[str]:
        return self.exported.names(self.ledger, at=self.at, at_most=at_most)


def ramp(cluster: Cluster) -> dict[str, float]:
    """Each worker is a little more useful than the one before."""
    return {name: i / len(cluster.names) for i, name in enumerate(cluster.names)}


def test_above_the_limit_those_that_are_most_and_least_useful_are_exported_for_a_minute() -> None:
    cluster = Cluster(40)
    cluster.run(ramp(cluster))
    assert cluster.now(at_most=40) == set(cluster.names)
    assert not cluster.exported.limited
    first = cluster.now(at_most=39)
    assert first == {*cluster.names[:EXTREMES], *cluster.names[-EXTREMES:]}
    assert cluster.exported.limited
    cluster.run({name: 1 - share for name, share in ramp(cluster).items()}, CHOOSE_NS / 1e9 - 1)
    assert all(cluster.now(at_most=39) == first for _ in range(3))


@pytest.mark.parametrize(("limit", "exported"), [(1, 0), (2, 2), (7, 6), (19, 18), (20, 20)])
def test_no_more_are_exported_than_the_limit_however_low(limit: int, exported: int) -> None:
    cluster = Cluster(40)
    cluster.run(ramp(cluster))
    assert len(cluster.now(at_most=limit)) == exported


def test_small_differences_change_nothing_and_lasting_ones_do() -> None:
    cluster = Cluster(40)
    even = dict.fromkeys(cluster.names, 0.5)
    cluster.run(even)
    first = cluster.now()
    out = next(name for name in cluster.names if name not in first)
    for share in (0.51, 0.49, 0.54, 0.46):
        cluster.run(even | {out: share})
        assert cluster.now() == first
    for _ in range(10):
        cluster.run(even | {out: 0.1})
    assert out in cluster.now()
    assert len(cluster.now()) == 2 * EXTREMES


def test_one_without_work_keeps_its_place_and_one_that_never_had_any_has_none() -> None:
    cluster = Cluster(40)
    idle = set(cluster.names[30:])
    with_work = {name: share for name, share in ramp(cluster).items() if name not in idle}
    cluster.run(with_work)
    first = cluster.now()
    assert not first & idle
    cluster.run({})
    assert cluster.now() == first


def test_one_that_is_not_measured_is_not_among_the_least_useful() -> None:
    cluster = Cluster(40)
    cluster.run(ramp(cluster))
    cluster.ledger.receive(cluster.names[0], encode_not_measured("its meter failed"), at=cluster.at)
    cluster.ledger.accrue(at=cluster.at + SECOND)
    assert cluster.now() == {*cluster.names[1 : 1 + EXTREMES], *cluster.names[-EXTREMES:]}


def test_one_that_leaves_is_exported_for_a_while_and_another_takes_its_place() -> None:
    cluster = Cluster(40)
    cluster.run(ramp(cluster))
    gone = cluster.names[0]
    assert gone in cluster.now()
    cluster.ledger.worker_left(gone, at=cluster.at)
    cluster.at += CHOOSE_NS // 2
    assert gone in cluster.now()
    cluster.at += max(CHOOSE_NS, RECENT_NS)
    assert gone not in cluster.now()
    assert len(cluster.now()) == 2 * EXTREMES


def test_workers_that_come_and_go_around_the_limit_do_not_take_all_series_with_them() -> None:
    cluster = Cluster(41)
    cluster.run(ramp(cluster))
    assert len(cluster.now(at_most=40)) == 2 * EXTREMES
    for left in range(41):
        cluster.ledger.worker_left(cluster.names[left], at=cluster.at)
        cluster.ledger.close_departed(at=cluster.at, grace=0)
        cluster.at += RECENT_NS
        cluster.now(at_most=40)
        assert cluster.exported.limited is (40 - left > 36)


# -- prefixes ----------------------------------------------------------------------------------


class Totals:
    """As much of a ledger as is read: time of tasks by prefix, and of free slots that spill."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[int, ...]] = {}
        self.free = 0
        self.exported = ExportedPrefixes()

    def take(self, bucket: Bucket = Bucket.THREAD_CPU, **taken: int) -> None:
        for prefix, ns in taken.items():
            row = [*self.rows.get(prefix, [0] * len(TASK_BUCKETS))]
            row[TASK_BUCKETS.index(bucket)] += ns
            self.rows[prefix] = tuple(row)

    def finalized_by_prefix(self) -> dict[str, tuple[int, ...]]:
        return dict(self.rows)

    def part(self, _: str) -> dict[str, int]:
        sums = [sum(row[i] for row in self.rows.values()) for i in range(len(TASK_BUCKETS))]
        found = dict.fromkeys(map(str, FINALIZED), 0) | dict(zip(TASK_BUCKETS, sums, strict=True))
        found[Bucket.SPILL] += self.free
        return found

    def read(self, at_most: int = 2) -> dict[str, list[int]]:
        cluster: Any = self
        return self.exported.rows(cluster, at_most=at_most)

    def cpu(self, at_most: int = 2) -> dict[str, int]:
        return {name: row[0] for name, row in self.read(at_most).items()}


def test_each_prefix_is_exported_as_it_is_while_there_is_room_unless_it_has_a_name_of_ours() -> None:
    totals = Totals()
    assert totals.cpu() == {OTHER: 0}
    totals.take(read=10)
    assert totals.cpu() == {"read": 10, OTHER: 0}
    totals.take(sum=1, read=5)
    assert totals.cpu() == {"read": 15, "sum": 1, OTHER: 0}
    totals = Totals()
    totals.take(**{"(former 1)": 5})
    assert totals.cpu() == {OTHER: 5}


def test_those_that_took_most_are_exported_and_free_slots_that_spill_are_among_the_others() -> None:
    totals = Totals()
    totals.take(a=1, b=30, c=2, d=20, **{OTHER: 100})
    totals.free = 7
    rows = totals.read()
    assert {name: row[0] for name, row in rows.items()} == {"b": 30, "d": 20, OTHER: 103}
    assert rows[OTHER][TASK_BUCKETS.index(Bucket.SPILL)] == 7


def test_an_overtaking_prefix_starts_a_new_series_and_the_overtaken_one_stops_growing() -> None:
    totals = Totals()
    totals.take(a=100, b=40, c=10)
    assert totals.cpu() == {"a": 100, "b": 40, OTHER: 10}
    totals.take(c=35)  # 45 is not a quarter more than 40
    assert totals.cpu() == {"a": 100, "b": 40, OTHER: 45}
    totals.take(c=15, b=3)
    assert totals.cpu() == {"a": 100, "c": 15, "(former 1)": 40, OTHER: 48}
    totals.take(b=157)
    assert totals.cpu() == {"a": 100, "b": 157, "(former 2)": 55, OTHER: 48}


PREFIXES = st.sampled_from("abcdefg")
TAKEN = st.dictionaries(PREFIXES, st.integers(0, 10**6) | st.integers(0, 10**15))
GROWTH = st.tuples(st.sampled_from(TASK_BUCKETS), TAKEN)


@given(st.integers(1, 4), st.lists(st.tuples(st.lists(GROWTH, max_size=3), st.integers(0, 100)), max_size=30))
def test_all_series_add_up_to_the_totals_and_none_falls_or_counts_time_twice(
    at_most: int, scrapes: list[tuple[list[tuple[Bucket, dict[str, int]]], int]]
) -> None:
    totals = Totals()
    before: dict[str, list[int]] = {}
    then = totals.part("finalized")
    for grown, free in scrapes:
        totals.free += free
        for bucket, taken in grown:
            totals.take(bucket, **taken)
        rows, now = totals.read(at_most), totals.part("finalized")
        assert len(rows) <= at_most + 2
        for i, bucket in enumerate(TASK_BUCKETS):
            assert sum(row[i] for row in rows.values()) == now[bucket]
            # What Prometheus counts: of series that are new, nothing of what they begin with.
            more = [row[i] - before[name][i] for name, row in rows.items() if name in before]
            assert min(more, default=0) >= 0
            assert sum(more) <= now[bucket] - then[bucket]
        before, then = rows, now
