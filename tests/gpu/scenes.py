"""Small scenes of tasks, calls and operations, and a slow model of their ledger, nanosecond by nanosecond."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from dask_efficiency.accounts.gpu import GpuUse
from dask_efficiency.gpu.meter import (
    BLOCKS,
    CALL,
    COPY,
    FILL,
    KERNEL,
    OPERATION,
    RETURNS,
    SPINS,
    Device,
    GpuBatch,
    TaskId,
    TaskWindow,
)

#: Identifiers as pthread_self gives them: wider than what CUPTI keeps.
THREADS = [(0x7F00 << 32) + low for low in (100, 200, 300)]
FOREIGN = (0x7F01 << 32) + 900
NEVER = (0x7F01 << 32) + 901
DEVICES = {0: Device("GPU-0", "a"), 1: Device("GPU-1", "b")}
NAMES = ("gemm", "add")
END = 200
NOBODY = None


@dataclass(frozen=True)
class Op:
    start: int
    end: int
    device: int
    activity: int
    name: int


@dataclass(frozen=True)
class Call:
    correlation: int
    thread: int
    start: int
    end: int
    waits: int
    ops: tuple[Op, ...] = ()
    #: The task in whose window it was made, if it was made there.
    task: TaskId | None = None


@dataclass(frozen=True)
class Scene:
    windows: tuple[TaskWindow, ...]
    calls: tuple[Call, ...]
    #: Instants of flushes; the last one is after everything.
    flushes: tuple[int, ...]

    @property
    def stops(self) -> dict[TaskId, int]:
        return {window.task: END * 10 if window.stop < 0 else window.stop for window in self.windows}


def call_rows(calls: Sequence[Call]) -> np.ndarray:
    rows = [(c.start, c.end, c.thread & 0xFFFFFFFF, c.correlation if c.ops else 0, c.waits) for c in calls]
    return np.array(rows, CALL)


def op_rows(ops: Sequence[tuple[Call, Op]]) -> np.ndarray:
    rows = [(op.start, op.end, op.device, 7, call.correlation, op.activity, op.name) for call, op in ops]
    return np.array(rows, OPERATION)


def batch(calls: Sequence[Call], ops: Sequence[tuple[Call, Op]], known_until: int) -> GpuBatch:
    return GpuBatch(op_rows(ops), call_rows(calls), NAMES, {}, known_until)


def in_order(scene: Scene) -> list[GpuBatch]:
    """A batch for each flush, as the meter promises them."""
    found, before = [], -1
    for at in scene.flushes:
        calls = [call for call in scene.calls if before < call.end <= at]
        ops = [(call, op) for call in scene.calls for op in call.ops if before < op.end <= at]
        found.append(batch(calls, ops, at))
        before = at
    return found


def windows_at(scene: Scene, at: int) -> list[TaskWindow]:
    """Windows at an instant: of every task that has begun."""
    return [w if 0 <= w.stop <= at else w._replace(stop=-1) for w in scene.windows if w.task.start <= at]


@st.composite
def scenes(draw: st.DrawFn, *, graphs: bool = True, flushes: bool = True) -> Scene:
    windows, calls = [], []
    correlation = 0

    def ask(thread: int, start: int, task: TaskId | None) -> Call:
        nonlocal correlation
        correlation += 1
        kind = draw(st.sampled_from(["kernel", "kernel", "kernel", "copy", "sync", "sync"]))
        took = draw(st.integers(1, 3))
        count = draw(st.sampled_from([1, 1, 1, 0, 3] if graphs else [1, 1, 1, 0]))
        ops = []
        begin = start + draw(st.integers(0, 12))
        device = draw(st.sampled_from([0, 0, 0, 1]))
        for _ in range(count if kind != "sync" else 0):
            end = begin + draw(st.integers(0, 15) | st.just(45))
            activity = KERNEL if kind == "kernel" else draw(st.sampled_from([COPY, FILL]))
            name = draw(st.integers(0, 1)) if activity == KERNEL else -1
            ops.append(Op(begin, end, device, activity, name))
            begin = end + draw(st.integers(0, 3))
        waits = draw(st.sampled_from([BLOCKS, SPINS]))
        if kind == "sync":
            return Call(correlation, thread, start, start + draw(st.integers(0, 40)), waits, (), task)
        if kind == "copy" and task and ops and ops[-1].end < start + 20 and draw(st.booleans()):
            return Call(correlation, thread, start, max(start, ops[-1].end) + took, waits, tuple(ops), task)
        return Call(correlation, thread, start, start + took, RETURNS, tuple(ops), task)

    for thread in THREADS[: draw(st.integers(1, 3))]:
        at = draw(st.integers(0, 30))
        for _ in range(draw(st.integers(0, 2))):
            # a call between two tasks
            if draw(st.integers(0, 5)) == 0:
                call = ask(thread, at, None)
                calls.append(call)
                at = call.end + 1
            task = TaskId(thread, at)
            for _ in range(draw(st.integers(0, 4))):
                at += draw(st.integers(0, 8))
                call = ask(thread, at, task)
                calls.append(call)
                at = call.end
            at += draw(st.integers(0, 10))
            windows.append(TaskWindow(task, at, draw(st.sampled_from(["load", "train"]))))
            at += 1 + draw(st.integers(0, 15))
        if windows and windows[-1].task.thread == thread and draw(st.integers(0, 4)) == 0:
            windows[-1] = windows[-1]._replace(stop=-1)
    for thread in (FOREIGN, NEVER):
        at = draw(st.integers(0, 60))
        for _ in range(draw(st.integers(0, 2))):
            call = ask(thread, at, None)
            calls.append(call)
            at = call.end + draw(st.integers(0, 20))
    last = max([END, *(w.stop for w in windows), *(c.end for c in calls), *(op.end for c in calls for op in c.ops)])
    cuts = set(draw(st.lists(st.integers(1, 8), max_size=5))) if flushes else set()
    return Scene(tuple(windows), tuple(calls), (*(25 * cut for cut in sorted(cuts)), 1000 + last))


@dataclass
class Model:
    """Right figures of the ledger, from the scene as a whole."""

    scene: Scene

    def owner(self, call: Call) -> TaskId | None:
        if call.task is not None:
            return call.task
        seen = next(at for at in self.scene.flushes if at >= call.end)
        begun = [window for window in self.scene.windows if window.task.start <= seen]
        if call.thread == NEVER or any(window.task.thread == call.thread for window in begun):
            return NOBODY
        stops = self.scene.stops
        there = [w.task for w in begun if w.task.start <= call.start <= stops[w.task]]
        using = [t for t in there if any(c.task == t and c.end <= seen for c in self.scene.calls)]
        there = using or there
        return there[0] if len(there) == 1 else NOBODY

    def ops(self, known: int = END * 100) -> list[tuple[TaskId | None, Call, Op]]:
        """Operations that a flush at an instant has brought, with their owners."""
        return [
            (self.owner(call), call, op)
            for call in self.scene.calls
            if call.end <= known
            for op in call.ops
            if op.end <= known
        ]

    def device(self, number: int) -> tuple[int, int]:
        kernels = copies = 0
        on = [op for _, _, op in self.ops() if op.device == number]
        for at in range(self._end()):
            running = {op.activity == KERNEL for op in on if op.start <= at < op.end}
            kernels += True in running
            copies += running == {False}
        return kernels, copies

    def shares(self, number: int) -> tuple[Counter[TaskId | None], Fraction]:
        """By task, exactly, and the part after their ends."""
        found: Counter[TaskId | None] = Counter()
        tail = Fraction(0)
        on = [(owner, op) for owner, _, op in self.ops() if op.device == number]
        for at in range(self._end()):
            owners = {owner for owner, op in on if op.start <= at < op.end}
            for owner in owners:
                part = Fraction(1, len(owners))
                found[owner] += part
                if owner is not NOBODY and at >= self.scene.stops[owner]:
                    tail += part
        return found, tail

    def use(self, task: TaskId) -> tuple[GpuUse, int]:
        """A task's use, and how much of it had work of its own on a device."""
        stop = self.scene.stops[task]
        ops = self.ops(next(at for at in self.scene.flushes if at >= stop))
        waits = [c for c in self.scene.calls if c.task == task and c.waits != RETURNS]
        parts: Counter[str] = Counter()
        for at in range(task.start, stop):
            calls = [c for c in waits if c.start <= at < c.end]
            if not calls:
                continue
            own = {op.activity == KERNEL for owner, _, op in ops if owner == task and op.start <= at < op.end}
            due = {op.device for owner, c, op in ops if owner == task and c.start <= at < op.start}
            others = any(
                op.device in due and op.activity == KERNEL and op.start <= at < op.end
                for owner, _, op in ops
                if owner not in (task, NOBODY)
            )
            kind = "kernel" if True in own else "contention" if others else "copy" if own else "wait"
            parts[kind] += 1
            parts["spun"] += any(c.waits == SPINS for c in calls)
            parts["busy"] += bool(own)
        busy = parts.pop("busy", 0)
        return GpuUse(**parts), busy

    def hidden(self, task: TaskId) -> int:
        mine = [op for owner, _, op in self.ops() if owner == task]
        stop = self.scene.stops[task]
        busy = sum(any(op.start <= at < op.end for op in mine) for at in range(stop))
        return max(busy - self.use(task)[1], 0)

    def _end(self) -> int:
        return max([0, *(op.end for _, _, op in self.ops())])
