"""GpuAccounts against a model that looks at every nanosecond, and by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.gpu.accounts import RUNNING, UNATTRIBUTED, GpuAccounts
from dask_efficiency.gpu.records import KERNEL, RETURNS, Batch, TaskId
from dask_efficiency.gpu.totals import DeviceTotals, GpuTotals
from tests.gpu.scenes import (
    DEVICES,
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


def feed(scene: Scene, batches: Sequence[Batch]) -> tuple[GpuAccounts, list[GpuTotals]]:
    accounts, seen = GpuAccounts(0), []
    for index, each in enumerate(batches):
        for task, (prefix, when) in scene.names.items():
            if when == index:
                accounts.name(task, prefix)
        last = index == len(batches) - 1
        windows = windows_at(scene, each.known_until)
        accounts.add(each, windows, devices=DEVICES, not_tasks=[NEVER], final=last)
        seen.append(accounts.totals())
    return accounts, seen


def by_prefix(scene: Scene, of_tasks: Counter[TaskId | None]) -> Counter[str]:
    found: Counter[str] = Counter()
    for task, ns in of_tasks.items():
        if task is not NOBODY:
            prefix, when = scene.names[task]
            found[prefix if when < len(scene.flushes) else RUNNING] += ns
    return +found


@given(scenes(graphs=False))
def test_flush_by_flush_the_accounts_come_to_what_the_model_says(scene: Scene) -> None:
    model = Model(scene)
    accounts, seen = feed(scene, in_order(scene))
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
            assert accounts.use(window.task) is None
        else:
            assert accounts.use(window.task) == model.use(window.task)[0]
            hidden[window.task] = model.hidden(window.task)
    assert totals.hidden == by_prefix(scene, hidden)


@given(scenes(flushes=False))
def test_all_at_once_with_graphs_the_accounts_come_to_what_the_model_says(scene: Scene) -> None:
    model = Model(scene)
    accounts, seen = feed(scene, in_order(scene))
    for number, device in enumerate(seen[-1].devices):
        assert (device.kernels, device.copies, device.late) == (*model.device(number), 0)
    for window in scene.windows:
        if window.stop >= 0:
            assert accounts.use(window.task) == model.use(window.task)[0]


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
def test_the_identities_hold_whatever_comes_when(scene: Scene, data: st.DataObject) -> None:
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
    accounts, seen = feed(scene, batches)
    for totals in seen:
        for device in totals.devices:
            check(device)
    for earlier, later in zip(seen, seen[1:], strict=False):
        never_less(earlier, later)
    model = Model(scene)
    for number, device in enumerate(seen[-1].devices):
        kernels, copies = model.device(number)
        assert device.kernels + device.copies <= kernels + copies
        assert kernels + copies <= device.kernels + device.copies + device.late
    for window in scene.windows:
        use = accounts.use(window.task)
        assert (use is None) == (window.stop < 0)
        waits = {
            at
            for call in scene.calls
            if call.task == window.task and call.waits != RETURNS
            for at in range(call.start, call.end)
        }
        assert use is None or sum(use[:4]) <= len(waits)


def check(device: DeviceTotals) -> None:
    assert device.kernels + device.copies + device.idle == device.elapsed
    assert sum(device.shares.values()) + device.unattributed == device.kernels + device.copies
    assert (
        min(device.kernels, device.copies, device.idle, device.unattributed, device.late, *device.shares.values(), 0)
        == 0
    )
    assert 0 <= device.tail <= sum(device.shares.values())


def never_less(earlier: GpuTotals, later: GpuTotals) -> None:
    for before, after in zip(earlier.devices, later.devices, strict=True):
        for name in ("elapsed", "kernels", "copies", "idle", "unattributed", "tail", "late"):
            assert getattr(before, name) <= getattr(after, name), name
        assert all(ns <= after.shares.get(prefix, 0) for prefix, ns in before.shares.items() if prefix != RUNNING)
    assert all(ns <= later.hidden.get(prefix, 0) for prefix, ns in earlier.hidden.items() if prefix != RUNNING)
    assert earlier.kernel_ns <= later.kernel_ns
    assert earlier.attributed_ns <= later.attributed_ns
