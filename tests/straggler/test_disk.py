from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.runs.stragglers.offline import CONFIDENCE_OF_SUSPECT, find_stragglers, usual
from dask_efficiency.runs.stragglers.tables import run_of_table
from dask_efficiency.straggler.disk import AGAINST_USUAL, judge_disks
from tests.runs.stragglers.tables_of_tasks import changed, slowed, tasks

#: Workers 0 to 3 share a host, 4 to 7 another one.
FIRST = ["w00", "w01", "w02", "w03"]


def on_hosts(seed: int = 0, **options: float) -> pd.DataFrame:
    """Healthy workers of two hosts, with the time in which they move data, and hardly a wait for the disk."""
    frame = tasks(8, seed=seed, **options)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed + 100)
    disk = 0.5 * np.exp(0.1 * rng.standard_normal(len(frame)))
    host = np.where(frame.worker.isin(FIRST), "first", "second")
    return frame.assign(host=host, disk_seconds=disk, io_wait_seconds=0.1 * rng.random(len(frame)))


BEFORE, HEALTHY = usual([on_hosts(seed) for seed in range(5)]), on_hosts(9)


def held_up(frame: pd.DataFrame, names: Sequence[str], *, seconds: float = 4.0, every: int = 1) -> pd.DataFrame:
    """The same where every so manieth task of some workers waits, and data of all of them move for longer."""

    def change(rows: pd.DataFrame) -> pd.DataFrame:
        rows["stop"] += np.where(np.arange(len(rows)) % every == 0, seconds, 0.0)
        rows["disk_seconds"] *= 2.0
        return rows

    return changed(frame, names, change)


def waits_for_the_disk(frame: pd.DataFrame, name: str, seconds: float) -> pd.DataFrame:
    """The same where the kernel says that a worker's tasks waited for the disk."""
    return changed(frame, name, lambda rows: rows.assign(io_wait_seconds=rows.io_wait_seconds + seconds))


def blamed(frame: pd.DataFrame) -> dict[str, Cause]:
    return {one.worker: one.cause for one in find_stragglers(frame, history=BEFORE)}


def test_a_worker_that_waits_for_the_disk_is_blamed_and_the_others_of_its_host_are_not() -> None:
    frame = waits_for_the_disk(held_up(on_hosts(9), FIRST), "w02", 2.0)
    [found] = find_stragglers(frame, history=BEFORE)
    assert (found.worker, found.cause) == ("w02", Cause.DISK)
    assert {one.signal for one in found.evidence if one.z > 10} >= {"io_wait"}
    assert found.confidence > 0.9
    assert found.effect == pytest.approx((3.0 + 1.0 + 4.0) / 3.5, rel=0.2)


def test_without_waits_for_the_disk_all_that_are_blocked_in_each_task_are_suspects() -> None:
    found = find_stragglers(held_up(on_hosts(9), FIRST), history=BEFORE)
    assert found
    assert {one.worker for one in found} <= set(FIRST)
    assert {one.cause for one in found} == {Cause.DISK}
    assert {one.confidence for one in found} == {CONFIDENCE_OF_SUSPECT}


def test_a_worker_that_is_blocked_in_some_tasks_only_is_no_suspect() -> None:
    frame = held_up(held_up(HEALTHY, ["w00", "w01"]), ["w02", "w03"], every=2)
    assert set() < set(blamed(frame)) <= {"w00", "w01"}


def test_a_wait_that_is_not_clear_blames_its_worker_and_acquits_nobody() -> None:
    frame = held_up(on_hosts(9), FIRST)
    assert len(blamed(waits_for_the_disk(frame, "w02", 0.2))) > 1
    assert blamed(waits_for_the_disk(frame, "w02", 0.2))["w02"] is Cause.DISK
    assert list(blamed(waits_for_the_disk(frame, "w02", 5.0))) == ["w02"]


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (waits_for_the_disk(HEALTHY, "w02", 2.0), {}),  # a wait that makes nothing longer
        (slowed(HEALTHY, "w05", 2.5, cpu_too=False), {"w05": Cause.CONTENTION}),
        *((on_hosts(seed), {}) for seed in range(10, 20)),
        (
            slowed(waits_for_the_disk(held_up(HEALTHY, FIRST), "w02", 2.0), "w06", 2.5),
            {"w02": Cause.DISK, "w06": Cause.SLOW_CPU},
        ),
    ],
)
def test_only_a_wait_that_holds_a_worker_up_is_of_a_slow_disk(frame: pd.DataFrame, expected: dict[str, Cause]) -> None:
    assert blamed(frame) == expected


def test_a_host_that_is_blocked_while_its_data_move_as_usual_has_no_slow_disk() -> None:
    blocked = changed(HEALTHY, FIRST, lambda rows: rows.assign(stop=rows.stop + 4.0))
    assert Cause.DISK not in blamed(blocked).values()


def test_contention_of_a_host_that_moves_data_a_little_longer_is_no_slow_disk() -> None:
    held = changed(
        HEALTHY, FIRST, lambda rows: rows.assign(stop=rows.stop + 4.0, disk_seconds=1.15 * rows.disk_seconds)
    )
    assert blamed(held) == dict.fromkeys(FIRST, Cause.CONTENTION)


def test_a_worker_that_waits_for_the_disk_was_held_up_if_its_tasks_are_blocked_a_little_longer() -> None:
    waits = waits_for_the_disk(on_hosts(10), "w00", 0.3)
    assert blamed(changed(waits, "w00", lambda rows: rows.assign(stop=rows.stop + 0.05))) == {"w00": Cause.DISK}


def test_a_worker_that_moves_data_faster_than_the_others_of_its_host_is_no_suspect() -> None:
    frame = changed(held_up(HEALTHY, FIRST), "w01", lambda rows: rows.assign(disk_seconds=rows.disk_seconds * 0.8))
    assert set() < set(blamed(frame)) <= {"w00", "w02", "w03"}


def test_the_effect_is_of_the_whole_task_and_not_of_its_blocked_part() -> None:
    frame = changed(on_hosts(9), FIRST, lambda rows: rows.assign(disk_seconds=rows.disk_seconds * 4.0))
    found = [one for one in find_stragglers(waits_for_the_disk(frame, "w02", 1.0), history=BEFORE) if one.worker]
    effect = {one.worker: one.effect for one in found}
    assert effect["w02"] == pytest.approx((3.0 + 2.0) / (3.0 + 0.5), rel=0.1)


def test_waits_that_are_not_more_than_they_often_are_blame_nobody() -> None:
    wide = usual([on_hosts(seed).assign(io_wait_seconds=np.linspace(0.0, 4.0, 320)) for seed in range(5)])
    frame = waits_for_the_disk(held_up(on_hosts(9), FIRST), "w02", 3.0)
    found = find_stragglers(frame, history=wide)
    assert found
    assert {one.confidence for one in found} == {CONFIDENCE_OF_SUSPECT}


def test_disks_are_not_judged_without_usual_figures_or_without_the_times() -> None:
    found = {one.signal: one for one in run_of_table(on_hosts(9)).observations}
    hosts, behind = ["first"] * 4 + ["second"] * 4, np.zeros(8)
    assert judge_disks(found, hosts, {}, behind, 3.0) is None
    for signal in (*AGAINST_USUAL, "io_wait"):
        less = {name: one for name, one in found.items() if name != signal}
        assert judge_disks(less, hosts, BEFORE, behind, 3.0) is None
    assert judge_disks(found, hosts, BEFORE, behind, 3.0) is not None


def test_work_that_was_never_seen_before_accuses_nobody() -> None:
    frame = held_up(on_hosts(9), FIRST).assign(prefix="new")
    found = {one.signal: one for one in run_of_table(frame).observations}
    judged = judge_disks(found, list(frame.groupby("worker").host.first()), BEFORE, np.zeros(8), 3.0)
    assert judged is not None
    assert not any(one.z.any() for one in judged.scores)
    assert not judged.waiting.any()
    assert judged.effect(0) == 1.0


@settings(max_examples=25)
@given(waits=st.lists(st.floats(0.0, 100.0), min_size=4, max_size=4), seed=st.integers(0, 99))
def test_no_worker_is_a_culprit_and_a_bystander_at_once_and_scores_are_finite(waits: list[float], seed: int) -> None:
    frame = held_up(on_hosts(seed, per_worker=8), FIRST)
    for name, seconds in zip(FIRST, waits, strict=True):
        frame = waits_for_the_disk(frame, name, seconds)
    run = run_of_table(frame)
    judged = judge_disks({one.signal: one for one in run.observations}, run.hosts, BEFORE, np.zeros(8), 3.0)
    assert judged is not None
    highest = np.max([one.z for one in judged.scores], axis=0)
    assert np.isfinite(highest).all()
    assert not (judged.waiting & (highest >= 3.0)).any()
    assert not judged.waiting[4:].any()
    assert all(math.isfinite(judged.effect(worker)) and judged.effect(worker) >= 1.0 for worker in range(8))
