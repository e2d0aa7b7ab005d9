from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.presence import WorkerStay, attendance

SPANS = st.tuples(st.integers(0, 20), st.none() | st.integers(1, 20), st.integers(1, 4))
STAYS = st.lists(SPANS.map(lambda s: WorkerStay(s[0], None if s[1] is None else s[0] + s[1], s[2])), max_size=8)


def test_a_worker_that_replaces_another_or_is_of_another_time_is_not_counted_with_it() -> None:
    stays = [WorkerStay(0, 10, 2), WorkerStay(10, 20, 4), WorkerStay(5, None, 1)]
    assert attendance(stays, start=0, stop=30) == {"workers": 3, "most_workers": 2, "most_threads": 5}
    stays = [WorkerStay(0, 10, 1), WorkerStay(5, 12, 2), WorkerStay(20, None, 4)]
    assert attendance(stays, start=10, stop=20) == {"workers": 1, "most_workers": 1, "most_threads": 2}
    assert attendance([], start=0, stop=1) == {"workers": 0, "most_workers": 0, "most_threads": 0}


@given(STAYS, st.integers(0, 20), st.integers(1, 20))
def test_the_most_at_a_time_is_that_of_an_instant(stays: list[WorkerStay], start: int, length: int) -> None:
    stop = start + length
    at = [[s for s in stays if s.joined <= i and (s.left is None or s.left > i)] for i in range(start, stop)]
    found = attendance(stays, start=start, stop=stop)
    assert found["workers"] == len({id(stay) for there in at for stay in there})
    assert found["most_workers"] == max(map(len, at))
    assert found["most_threads"] == max(sum(stay.nthreads for stay in there) for there in at)
