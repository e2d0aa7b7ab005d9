import math

from dask_efficiency.torch_traces.summaries.copies import copies_of, merged_copies
from tests.torch_traces.path.programs import Event, rank_of, work


def copy(name: str, start: int, stop: int, nbytes: int | None, cat: str = "gpu_memcpy") -> Event:
    event = work(name, start, stop, 0, cat=cat)
    event["args"] |= {} if nbytes is None else {"bytes": nbytes}
    return event


def test_copies_have_bytes_and_bytes_a_second_by_direction() -> None:
    to_gpu, to_host = "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)"
    ranks = [
        rank_of(
            [copy(to_gpu, 0, 10, 10_000), copy(to_gpu, 20, 40, 30_000), copy("Memset (Device)", 50, 51, 8, "memset")]
        ),
        rank_of([copy(to_host, 0, 100, 5_000), copy(to_gpu, 200, 210, None)]),
    ]
    found = merged_copies([copies_of(rank) for rank in ranks])
    assert found.names == (to_gpu, "Memset (Device)", to_host)
    sums = found.sums
    assert [found.names[name] for name in sums.name] == [to_host, to_gpu, "Memset (Device)"]
    assert sums.total.tolist() == [100_000, 40_000, 1_000]
    assert (sums.count.tolist(), sums.sized.tolist()) == ([1, 3, 1], [1, 2, 1])
    assert sums.nbytes.tolist() == [5_000, 40_000, 8]
    assert sums.bytes_per_second.round().tolist() == [5e7, round(40_000 / 30e-6), 8e6]


def test_sizes_that_cannot_be_are_not_known() -> None:
    name = "Memcpy HtoD (Pinned -> Device)"
    sums = copies_of(rank_of([copy(name, 20 * i, 20 * i + 10, 9 * 10**18) for i in range(2)])).sums
    assert (sums.sized.tolist(), sums.nbytes.tolist()) == ([0], [0])
    assert math.isnan(sums.bytes_per_second[0])


def test_without_bytes_nothing_is_said_of_the_speed() -> None:
    found = copies_of(rank_of([copy("Memcpy DtoD (Device -> Device)", 0, 10, None)]))
    assert math.isnan(found.sums.bytes_per_second[0])
    assert found.sums.sized.tolist() == [0]
