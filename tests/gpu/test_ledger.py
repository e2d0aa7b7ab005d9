from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, GpuUse
from dask_efficiency.gpu import ledger as ledger_module
from dask_efficiency.gpu.ledger import MAX_LISTED, OTHER, UNATTRIBUTED, GpuLedger, KernelTable
from dask_efficiency.gpu.meter import BLOCKS, COPY, KERNEL, OPERATION, RETURNS, SPINS, GpuBatch, TaskId, TaskWindow
from tests.gpu.scenes import (
    DEVICES,
    FOREIGN,
    NEVER,
    NOBODY,
    THREADS,
    Call,
    Model,
    Op,
    Scene,
    batch,
    in_order,
    scenes,
    windows_at,
)

SECOND = 1_000_000_000
A, B = THREADS[:2]


class Ledger(GpuLedger):
    """Keys are prefixes."""

    def __init__(self, at: int = 0) -> None:
        super().__init__(at, prefix_of=str)
        self.known: dict[TaskId, GpuUse] = {}

    def add(self, batch: GpuBatch, windows: Iterable[TaskWindow] = (), **kwargs: Any) -> None:
        super().add(batch, windows, **kwargs)
        uses = self.uses()
        assert GpuUse() not in uses.values()
        assert not uses.keys() & self.known.keys()
        self.known |= uses

    def use(self, task: TaskId) -> GpuUse:
        return self.known.get(task, GpuUse())


def feed(scene: Scene, batches: Sequence[GpuBatch]) -> tuple[Ledger, list[GpuTotals]]:
    ledger, seen = Ledger(), []
    for index, each in enumerate(batches):
        last = index == len(batches) - 1
        windows = windows_at(scene, each.known_until)
        ledger.add(each, windows, devices=DEVICES, not_tasks=[NEVER], final=last)
        seen.append(ledger.totals())
    return ledger, seen


def by_prefix(scene: Scene, of_tasks: Counter[TaskId | None]) -> Counter[str]:
    found: Counter[str] = Counter()
    prefixes = {window.task: window.key for window in scene.windows}
    for task, ns in of_tasks.items():
        if task is not NOBODY:
            found[prefixes[task]] += ns
    return +found


@given(scenes(graphs=False))
def test_flush_by_flush_the_ledger_agrees_with_the_model(scene: Scene) -> None:
    model = Model(scene)
    ledger, seen = feed(scene, in_order(scene))
    totals = seen[-1]
    for number, device in enumerate(totals.devices):
        assert device.elapsed == scene.flushes[-1]
        assert device.late == 0
        assert (device.kernels, device.copies) == model.device(number)
        shares, tail = model.shares(number)
        expected = by_prefix(scene, shares)
        # each booking rounds each task's share by less than 1, and its parts before and after its end
        tolerance = 2 * len(scene.flushes) * (len(scene.windows) + 1)
        assert device.unattributed == pytest.approx(float(shares[NOBODY]), abs=tolerance)
        assert device.tail == pytest.approx(float(tail), abs=tolerance)
        for prefix in expected.keys() | device.shares.keys():
            assert device.shares.get(prefix, 0) == pytest.approx(float(expected[prefix]), abs=tolerance)
    hidden: Counter[TaskId | None] = Counter()
    for window in scene.windows:
        if window.stop < 0:
            assert window.task not in ledger.known
        else:
            assert ledger.use(window.task) == model.use(window.task)[0]
            hidden[window.task] = model.hidden(window.task)
    assert totals.hidden == by_prefix(scene, hidden)


@given(scenes(flushes=False))
def test_all_at_once_with_graphs_the_ledger_agrees_with_the_model(scene: Scene) -> None:
    model = Model(scene)
    ledger, seen = feed(scene, in_order(scene))
    for number, device in enumerate(seen[-1].devices):
        assert (device.kernels, device.copies, device.late) == (*model.device(number), 0)
    for window in scene.windows:
        if window.stop >= 0:
            assert ledger.use(window.task) == model.use(window.task)[0]


@given(scenes())
def test_kernels_and_coverage_are_the_sums_of_durations(scene: Scene) -> None:
    model = Model(scene)
    _, seen = feed(scene, in_order(scene))
    expected: Counter[tuple[str, str]] = Counter()
    launches: Counter[tuple[str, str]] = Counter()
    attributed = 0
    for owner, _, op in model.ops():
        if op.activity == KERNEL:
            name = ("gemm", "add")[op.name]
            prefix = UNATTRIBUTED if owner is NOBODY else next(iter(by_prefix(scene, Counter({owner: 1}))))
            expected[prefix, name] += op.end - op.start
            launches[prefix, name] += 1
            attributed += op.end - op.start if owner is not NOBODY else 0
    totals = seen[-1]
    assert {(k.prefix, k.name): k.launches for k in totals.kernels} == launches
    assert {(k.prefix, k.name): k.ns for k in totals.kernels if k.ns} == +expected
    assert totals.kernel_ns == sum(expected.values())
    # a call that was under way for two flushes is not waited for
    assert totals.attributed_ns == attributed


@given(scenes(), st.data())
def test_the_identities_hold_in_any_order_of_arrival(scene: Scene, data: st.DataObject) -> None:
    """Late, early, out of order, and with the horizon wherever it was."""
    count = len(scene.flushes)
    when = st.integers(0, count - 1)
    calls: list[list[Call]] = [[] for _ in range(count)]
    ops: list[list[tuple[Call, Op]]] = [[] for _ in range(count)]
    for call in data.draw(st.permutations(scene.calls)):
        calls[data.draw(when)].append(call)
        for op in call.ops:
            ops[data.draw(when)].append((call, op))
    batches = [batch(calls[index], ops[index], at) for index, at in enumerate(scene.flushes)]
    ledger, seen = feed(scene, batches)
    for totals in seen:
        for device in totals.devices:
            check(device)
    for earlier, later in pairwise(seen):
        never_less(earlier, later)
    model = Model(scene)
    for number, device in enumerate(seen[-1].devices):
        kernels, copies = model.device(number)
        assert device.kernels + device.copies <= kernels + copies
        assert kernels + copies <= device.kernels + device.copies + device.late
    for window in scene.windows:
        use = ledger.use(window.task)
        assert window.stop >= 0 or window.task not in ledger.known
        waits = {
            at
            for call in scene.calls
            if call.task == window.task and call.waits != RETURNS
            for at in range(call.start, call.end)
        }
        assert sum(use[:4]) <= len(waits)


def check(device: DeviceTotals) -> None:
    assert device.kernels + device.copies + device.idle == device.elapsed
    assert sum(device.shares.values()) + device.unattributed == device.kernels + device.copies
    parts = (device.kernels, device.copies, device.idle, device.unattributed, device.late, *device.shares.values())
    assert min(parts) >= 0
    assert 0 <= device.tail <= sum(device.shares.values())


def never_less(earlier: GpuTotals, later: GpuTotals) -> None:
    for before, after in zip(earlier.devices, later.devices, strict=True):
        for name in ("elapsed", "kernels", "copies", "idle", "unattributed", "tail", "late"):
            assert getattr(before, name) <= getattr(after, name), name
        assert all(ns <= after.shares.get(prefix, 0) for prefix, ns in before.shares.items())
    assert all(ns <= later.hidden.get(prefix, 0) for prefix, ns in earlier.hidden.items())
    assert earlier.kernel_ns <= later.kernel_ns
    assert earlier.attributed_ns <= later.attributed_ns


def kernel(start: int, end: int, *, device: int = 0) -> tuple[Op, ...]:
    return (Op(start, end, device, KERNEL, 0),)


def run(
    calls: Sequence[Call], windows: dict[TaskId, tuple[int, str]], *, flushes: Sequence[int] = (100,)
) -> tuple[Ledger, list[GpuTotals]]:
    """Feed calls, and tasks with their ends and prefixes."""
    seen = tuple(TaskWindow(task, stop, prefix) for task, (stop, prefix) in windows.items())
    scene = Scene(seen, tuple(calls), tuple(flushes))
    return feed(scene, in_order(scene))


def test_a_kernel_of_ten_seconds_is_kernel_time_however_many_flushes_it_crosses() -> None:
    task = TaskId(A, 0)
    calls = [
        Call(1, A, 10, 20, RETURNS, kernel(30, 10 * SECOND)),
        Call(2, A, 25, 35, RETURNS, kernel(40, 50, device=1)),
        Call(3, A, 50, 10 * SECOND + 5, SPINS),
    ]
    flushes = [SECOND * index for index in range(1, 14)]
    ledger, seen = run(calls, {task: (10 * SECOND + 10, "x")}, flushes=flushes)
    device = seen[-1].devices[0]
    assert (device.kernels, device.late, device.elapsed) == (10 * SECOND - 30, 0, 13 * SECOND)
    assert seen[5].devices[0].elapsed == 10
    blocked = 10 * SECOND + 5 - 50
    assert ledger.use(task) == GpuUse(kernel=blocked - 5, wait=5, spun=blocked)


def test_a_copy_whose_call_is_under_way_at_a_flush_is_not_late() -> None:
    task = TaskId(A, 0)
    copy = (Op(20, 90, 0, COPY, -1),)
    calls = [Call(1, A, 5, 6, RETURNS, kernel(7, 9)), Call(2, A, 15, 91, SPINS, copy)]
    ledger, seen = run(calls, {task: (95, "x")}, flushes=[50, 100])
    assert [totals.devices[0].elapsed for totals in seen] == [6, 100]
    assert (seen[-1].devices[0].copies, seen[-1].devices[0].late) == (70, 0)
    assert ledger.use(task) == GpuUse(copy=70, wait=6, spun=76)


def test_a_task_of_long_computing_holds_the_ledger_up_for_a_second_only() -> None:
    _, seen = run([], {TaskId(A, 0): (-1, "x")}, flushes=[SECOND // 2, 5 * SECOND, 6 * SECOND])
    assert [totals.devices[0].elapsed for totals in seen] == [0, 4 * SECOND, 6 * SECOND]


@pytest.mark.parametrize(("device", "shared"), [(0, {"contention": 20, "wait": 5}), (1, {"wait": 25})])
def test_tasks_contend_if_they_wait_for_one_device(device: int, shared: dict[str, int]) -> None:
    """A's kernel runs from 10 to 30 and B's, asked for at 5, from 30 to 40; both wait from 6 on."""
    a, b = TaskId(A, 0), TaskId(B, 0)
    calls = [
        Call(1, A, 4, 5, RETURNS, kernel(10, 30)),
        Call(2, B, 5, 6, RETURNS, kernel(30, 40, device=device)),
        Call(3, A, 6, 31, BLOCKS),
        Call(4, B, 6, 41, SPINS),
    ]
    ledger, seen = run(calls, {a: (32, "x"), b: (42, "y")})
    assert ledger.use(a) == GpuUse(kernel=20, wait=5)
    assert ledger.use(b) == GpuUse(kernel=10, spun=35, **shared)
    assert seen[-1].devices[0].shares == ({"x": 20} if device else {"x": 20, "y": 10})


def test_kernels_that_run_at_once_share_their_time() -> None:
    """From 10 to 20 A alone, to 40 both, to 50 B alone."""
    a, b = TaskId(A, 0), TaskId(B, 0)
    calls = [Call(1, A, 1, 2, RETURNS, kernel(10, 40)), Call(2, B, 1, 2, RETURNS, kernel(20, 50))]
    _, seen = run(calls, {a: (60, "x"), b: (60, "y")})
    assert seen[-1].devices[0].shares == {"x": 20, "y": 20}
    assert seen[-1].hidden == {"x": 30, "y": 30}


def test_work_after_the_end_of_its_task_stays_the_tasks() -> None:
    task = TaskId(A, 0)
    calls = [Call(1, A, 1, 2, RETURNS, kernel(10, 40))]
    _, seen = run(calls, {task: (25, "x")}, flushes=[20, 30, 100])
    device = seen[-1].devices[0]
    assert (device.shares, device.tail, device.unattributed) == ({"x": 30}, 15, 0)
    assert seen[-1].hidden == {"x": 15}


def test_a_backward_pass_in_another_thread_is_that_of_the_only_task_that_uses_the_gpu() -> None:
    training, loading = TaskId(A, 0), TaskId(B, 0)
    calls = [Call(1, A, 1, 2, RETURNS, kernel(3, 5)), Call(2, FOREIGN, 10, 11, RETURNS, kernel(12, 20))]
    windows = {training: (30, "train"), loading: (30, "load")}
    _, seen = run(calls, windows)
    assert seen[-1].devices[0].shares == {"train": 10}
    _, seen = run([*calls, Call(3, B, 1, 2, RETURNS, kernel(3, 5))], windows)
    assert seen[-1].devices[0].unattributed == 8
    assert seen[-1].coverage == pytest.approx(4 / 12)


@pytest.mark.parametrize(("bound", "second"), [(1000, "y"), (1, OTHER)])
def test_an_ident_of_a_thread_is_used_again_and_prefixes_are_bounded(
    monkeypatch: pytest.MonkeyPatch, bound: int, second: str
) -> None:
    monkeypatch.setattr(ledger_module, "MAX_APART", bound)
    calls = [Call(1, A, 10, 11, RETURNS, kernel(12, 20)), Call(2, A, 60, 61, RETURNS, kernel(62, 65))]
    _, seen = run(calls, {TaskId(A, 0): (30, "x"), TaskId(A, 50): (90, "y")})
    assert seen[-1].devices[0].shares == {"x": 8, second: 3}


def test_a_task_that_ended_long_ago_is_forgotten() -> None:
    calls = [Call(1, A, 1, 2, RETURNS, kernel(10, 40))]
    ledger, seen = run(calls, {TaskId(A, 0): (50, "x")}, flushes=[100, 200 * SECOND])
    assert seen[-1].devices[0].shares == {"x": 30}
    assert (ledger._open, ledger._closed, ledger._tasks._threads, ledger._tasks._by_number) == ({}, {}, {}, {})


@pytest.mark.parametrize(("until", "lost", "elapsed"), [(200, True, 200), (200, False, 10), (90 * SECOND, False, None)])
def test_operations_are_waited_for_a_minute_unless_some_were_lost(until: int, lost: bool, elapsed: int | None) -> None:
    ledger = Ledger()
    call = Call(1, A, 10, 11, RETURNS, kernel(12, 20))
    ledger.add(batch([call], [], 100), [TaskWindow(TaskId(A, 5), 50, "x")], devices=DEVICES)
    assert ledger.totals().devices[0].elapsed == 10
    ledger.add(batch([], [], until), devices=DEVICES, lost=lost)
    found = ledger.totals().devices[0].elapsed
    assert found >= 30 * SECOND if elapsed is None else found == elapsed


def test_an_upper_bound_is_split_from_the_waiting_and_never_more() -> None:
    task, other = TaskId(A, 0), TaskId(B, 0)
    calls = batch([Call(1, A, 10, 30, BLOCKS)], [], 100)
    bounded = replace(calls, bounds={task: 12, other: 7, TaskId(B, 60): 3})
    ledger = Ledger()
    ledger.add(bounded, [TaskWindow(task, 50, "x"), TaskWindow(other, 50, "y")], devices=DEVICES)
    assert ledger.use(task) == GpuUse(kernel=12, wait=8)
    assert ledger.use(other) == GpuUse()
    assert ledger.totals().bounds == {"x": 12, "y": 7, UNATTRIBUTED: 3}


def test_a_wait_that_began_before_the_meter_counts_from_the_meter_on() -> None:
    ledger = Ledger(20)
    task = TaskId(A, 0)
    call = Call(1, A, 5, 6, RETURNS, kernel(10, 28))
    both = batch([call, Call(2, A, 8, 30, SPINS)], [(call, call.ops[0])], 100)
    ledger.add(both, [TaskWindow(task, 50, "x")], devices=DEVICES)
    assert ledger.use(task) == GpuUse(kernel=8, wait=2, spun=10)
    device = ledger.totals().devices[0]
    assert (device.kernels, device.elapsed, device.late) == (8, 80, 0)


def test_too_many_operations_that_wait_for_an_old_one_wait_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_PENDING", 10)
    task = TaskId(A, 0)
    old = Call(1, A, 1, 2, RETURNS, kernel(90, 95))
    calls = [Call(index, A, index, index + 1, RETURNS, kernel(index + 2, index + 3)) for index in range(2, 40)]
    ledger = Ledger()
    ops = [(call, call.ops[0]) for call in calls]
    ledger.add(batch([old, *calls], ops, 60), [TaskWindow(task, -1, "x")], devices=DEVICES)
    device = ledger.totals().devices[0]
    assert device.elapsed == 60
    check(device)
    assert len(ledger._pending) == 0


def operations(names: list[int]) -> np.ndarray:
    return np.array([(0, 10, 0, 7, 1, 0, name) for name in names], OPERATION)


def test_names_that_are_not_in_the_list_or_beyond_the_bound_are_other(monkeypatch: pytest.MonkeyPatch) -> None:
    assert KernelTable().numbered(operations([0, -1, 2, 1]), ["a", "b"])["name"].tolist() == [1, 0, 0, 2]
    monkeypatch.setattr(ledger_module, "MAX_KERNEL_NAMES", 3)
    table = KernelTable()
    assert table.numbered(operations([0, 1, 2]), ["a", "b", "c"])["name"].tolist() == [1, 2, 0]
    assert table.numbered(operations([0]), ["b"])["name"].tolist() == [2]


def table_of(kernels: int) -> KernelTable:
    """Kernels k1, k2, ..., each launched twice, and for as many nanoseconds as its number says."""
    table = KernelTable()
    table.numbered(operations([]), [f"k{number}" for number in range(1, kernels + 1)])
    for number in range(1, kernels + 1):
        table.add("x", number, 2, number)
    return table


def test_pairs_beyond_the_bound_are_other_kernels_of_their_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_PAIRS", 2)
    assert [(row.name, row.ns) for row in table_of(3).totals()] == [(OTHER, 3), ("k2", 2), ("k1", 1)]


def test_the_rest_below_the_top_is_one_sum() -> None:
    found = table_of(MAX_LISTED + 5).totals()
    assert len(found) == MAX_LISTED + 1
    assert found[-1] == (OTHER, OTHER, 10, 1 + 2 + 3 + 4 + 5)
    assert found[0].ns == MAX_LISTED + 5
