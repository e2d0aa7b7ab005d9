from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.processors import (
    Both,
    Processors,
    ProcessorTime,
    cores,
    decode_processors,
    encode_processors,
    others_share,
    taken_by_others,
)

everyone = st.builds(
    Processors,
    used=st.none() | st.builds(ProcessorTime, *[st.integers(0, 2**60)] * 3),
    machine=st.sampled_from(["one", "two"]),
    group=st.sampled_from(["", "/a", "/b"]),
    affinity=st.integers(1, 2**12),
    quota=st.none() | st.floats(0.1, 16),
)


def on(affinity: int, quota: float | None = None, group: str = "", machine: str = "one") -> Processors:
    return Processors(machine, group, affinity, quota)


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([], 0),
        ([on(0b11)] * 3, 2),
        ([on(0b0011), on(0b1100)], 4),
        ([on(0b0111), on(0b1100)], 4),
        ([on(0b11), on(0b11, machine="two")], 4),
        # Two workers of one container of 1.5 cores, beside one with all four.
        ([on(0b1111, 1.5, "/a")] * 2, 1.5),
        ([on(0b1111, 1.5, "/a"), on(0b1111, 1.5, "/b")], 3),
        ([on(0b11, 1.5, "/a"), on(0b11, 1.5, "/b")], 2),
        # A group that may not run where others do adds no more than its limit.
        ([on(0b001), on(0b001, group="/b"), on(0b110, 1.0, "/a")], 2),
    ],
)
def test_workers_share_the_processors_of_their_affinity_within_their_limits(workers, expected) -> None:
    assert cores(workers) == expected


@given(st.lists(everyone, min_size=1, max_size=6), everyone)
def test_more_workers_never_have_fewer_cores_but_where_a_limit_is_lower(workers, one):
    together = cores([*workers, one])
    assert 0 < together <= (cores(workers) + cores([one])) * (1 + 1e-12)
    if one.quota is None and not one.group:
        assert together >= cores([one]) or any(w.machine == one.machine and w.quota is not None for w in workers)


@given(everyone)
def test_processors_survive_the_wire(processors: Processors) -> None:
    assert decode_processors(encode_processors(processors)) == processors


GOOD = {"machine": "one", "group": "", "affinity": "3", "quota": None}


def both(affinity: int, everything: int, computed: int, own: int, machine: str = "m") -> Both:
    """A process whose processors did so much from one instant to another."""
    then = Processors(machine, "", affinity, used=ProcessorTime(1_000, 500, 100))
    return then, replace(then, used=ProcessorTime(1_000 + everything, 500 + computed, 100 + own))


def test_time_that_neither_workers_nor_the_scheduler_computed_is_of_others() -> None:
    workers = [both(0b11, 200, 180, 40), both(0b11, 204, 182, 20)]
    assert others_share(workers) == 122 / 204
    assert others_share(workers, both(0b111, 300, 200, 22)) == 100 / 204
    assert others_share(workers, both(0b11, 300, 200, 22, "another")) == 122 / 204
    assert others_share([both(0b11, 200, 60, 61)]) == 0.0


def test_machines_and_separate_processors_are_summed() -> None:
    apart = [both(0b01, 100, 90, 20), both(0b10, 100, 30, 30)]
    assert others_share(apart) == 70 / 200
    assert others_share([*apart, both(0b11, 200, 100, 70, "another")]) == 100 / 400


def test_the_share_is_unknown_where_processors_overlap_partly_or_one_process_is_unknown() -> None:
    mixed = [both(0b11, 200, 180, 40), both(0b01, 100, 90, 20)]
    assert others_share(mixed) is None
    assert others_share([*mixed, both(0b11, 200, 100, 70, "another")]) == 30 / 200
    assert others_share([]) is None
    then, now = both(0b11, 200, 180, 40)
    for unknown in ((then, then), (now, then), (then, replace(now, used=None)), (then, replace(now, affinity=1))):
        assert others_share([(then, now), unknown]) is None


def test_others_take_what_processes_are_allowed_and_cannot_have() -> None:
    crowd = [both(0b11, 200, 180, 40)]  # 140 of 200
    assert taken_by_others(crowd) == pytest.approx(0.7)
    assert taken_by_others(crowd, both(0b11, 200, 180, 40)) == pytest.approx(0.5)
    # Others cannot take what a limit forbids: of one core of two, 0.6 are left.
    limited = [(replace(then, quota=1.0), replace(now, quota=1.0)) for then, now in crowd]
    assert taken_by_others(limited) == pytest.approx(0.4)
    assert taken_by_others([both(0b11, 200, 60, 40)]) == pytest.approx(0.1)
    assert taken_by_others([(crowd[0][0], crowd[0][0])]) == 0.0
    assert taken_by_others([]) == 0.0


@pytest.mark.parametrize(
    "payload",
    [
        7,
        {},
        *(GOOD | {"machine": value} for value in (3, "x" * 1_001)),
        *(GOOD | {"affinity": value} for value in ("0", "-3", "g", "f" * 20_000)),
        *(GOOD | {"quota": value} for value in (0.0, float("nan"), True, float("inf"))),
        *(GOOD | {"used": value} for value in (7, [1, 2], [3, 2, -1])),
    ],
)
def test_a_payload_out_of_order_is_refused(payload: Any) -> None:
    with pytest.raises(RefusedPayload, match="processors"):
        decode_processors(payload)
