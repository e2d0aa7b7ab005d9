"""GpuLedger: the work on the devices, added up exactly by the task that asked for it, flush by flush."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, GpuUse, KernelTotals
from dask_efficiency.accounts.rows import MAX_APART
from dask_efficiency.gpu.attribution import MAX_AGE, WAIT, WORK, Attribution, Joined
from dask_efficiency.gpu.intervals import Int64, ranked
from dask_efficiency.gpu.meter import KERNEL, Device, GpuBatch, Operations, TaskId, TaskWindow
from dask_efficiency.gpu.sharing import OTHERS_KERNEL, STRETCH, blocked, divide, label
from dask_efficiency.gpu.tasks import FOREVER, NOBODY, Task, TaskTable

#: Stands for names beyond :data:`MAX_KERNEL_NAMES`, prefixes beyond :data:`MAX_APART`, kernels without a name, and
#: name and prefix of kernels that are not listed.
OTHER = "(other)"
#: Pairs of prefix and name counted separately: the first ones seen. A guess, to bound memory.
MAX_PAIRS = 2000
#: Names of kernels kept, for all tasks together. A guess, to bound memory.
MAX_KERNEL_NAMES = 4000
#: Pairs listed in totals, which travel with each heartbeat: those that took most time.
MAX_LISTED = 50
#: Characters of a kernel name; meters cut theirs at 120 already.
_MAX_NAME = 200


class KernelTable:
    """Launches and nanoseconds of kernels by prefix and name, of a bounded number of names."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {OTHER: 0}
        self._sums: dict[tuple[str, int], list[int]] = {}

    def numbered(self, operations: Operations, names: Sequence[str]) -> Operations:
        """Operations with their names replaced by the numbers of names in this table."""
        numbers = np.array([*(self._number(name) for name in names), 0], np.int32)
        operations = operations.copy()
        # -1 stands for no name, and so does an index beyond the list.
        operations["name"] = numbers[np.where(operations["name"] < len(names), operations["name"], -1)]
        return operations

    def sums(self, kernels: NDArray[np.void]) -> Iterator[tuple[int, int, int, int]]:
        """Sum up numbered kernels by owner and name: tuples of owner, name, launches and nanoseconds."""
        durations = kernels["end"] - kernels["start"]
        pairs, rows = ranked(kernels["owner"] * MAX_KERNEL_NAMES + kernels["name"])
        launches = np.bincount(rows, minlength=len(pairs))
        ns = np.bincount(rows, durations, len(pairs)).astype(np.int64)
        owners, names = np.divmod(pairs, MAX_KERNEL_NAMES)
        return zip(owners.tolist(), names.tolist(), launches.tolist(), ns.tolist(), strict=True)

    def add(self, prefix: str, name: int, launches: int, ns: int) -> None:
        """Count kernels of a task."""
        key = prefix, name
        if key not in self._sums and len(self._sums) >= MAX_PAIRS:
            key = prefix, 0
        sums = self._sums.setdefault(key, [0, 0])
        sums[0] += launches
        sums[1] += ns

    def totals(self) -> tuple[KernelTotals, ...]:
        """Kernels that took most time, and the sum of the rest."""
        ordered = sorted(self._sums.items(), key=lambda item: (-item[1][1], item[0]))
        names = list(self._names)
        top = [KernelTotals(prefix, names[name], *row) for (prefix, name), row in ordered[:MAX_LISTED]]
        rest = [row for _, row in ordered[MAX_LISTED:]]
        if rest:
            launches, ns = map(sum, zip(*rest, strict=True))
            top.append(KernelTotals(OTHER, OTHER, launches, ns))
        return tuple(top)

    def _number(self, name: str) -> int:
        if len(self._names) >= MAX_KERNEL_NAMES:
            return self._names.get(name[:_MAX_NAME], 0)
        return self._names.setdefault(name[:_MAX_NAME], len(self._names))


#: A second in nanoseconds.
SECOND = 1_000_000_000
#: Stands for the prefix of work that no known task launched.
UNATTRIBUTED = "(unattributed)"
#: Operations that wait for older ones, 60 bytes each: 24 MB. Beyond, they do not wait.
MAX_PENDING = 400_000
#: Stretches of tasks whose threads may be in a call that waits, 25 bytes each: 10 MB. Beyond, the oldest go.
MAX_STRETCHES = 400_000
#: Longest wait for a call that is under way and may launch a copy, nanoseconds: figures lag by no more.
MAX_CALL = SECOND
#: Delay of a call behind the window of its task, at most, nanoseconds: ten flushes.
_SLACK = 5 * SECOND


@dataclass(slots=True)
class _DeviceTime:
    kernels: int = 0
    copies: int = 0
    unattributed: int = 0
    tail: int = 0
    late: int = 0
    shares: Counter[str] = field(default_factory=Counter)


class GpuLedger:
    """GPU time of one process since its meter was armed. Not thread-safe: one thread feeds it.

    Nothing before ``at``, at which the meter was armed, counts. Device time is counted up to the instant before which
    nothing more is expected. The launch of a kernel is known before its end, so a long kernel is waited for, up to a
    minute. A call is not known before it returns, so while a task runs the figures stop at the last known call of its
    thread, up to a second ago.
    """

    def __init__(self, at: int, prefix_of: Callable[[Any], str]) -> None:
        self._since = self._counted_until = at
        #: The GPU waits of every task that ended before this instant are known.
        self.known_until = at
        self._prefix_of = prefix_of
        self._tasks = TaskTable(self._prefix)
        self._attribution = Attribution(self._tasks)
        self._kernels = KernelTable()
        self._devices: dict[int, Device] = {}
        self._times: defaultdict[int, _DeviceTime] = defaultdict(_DeviceTime)
        self._pending: NDArray[np.void] = np.empty(0, WORK)
        self._waits: NDArray[np.void] = np.empty(0, WAIT)
        self._stretches: NDArray[np.void] = np.empty(0, STRETCH)
        #: By number: tasks that are not closed, and closed tasks that are not forgotten.
        self._open: dict[int, Task] = {}
        self._closed: dict[int, Task] = {}
        self._uses: dict[TaskId, GpuUse] = {}
        self._prefixes: set[str] = set()
        self._hidden: Counter[str] = Counter()
        self._bounds: Counter[str] = Counter()
        self._kernel_ns = self._attributed_ns = 0

    def add(
        self,
        batch: GpuBatch,
        windows: Iterable[TaskWindow] = (),
        *,
        devices: Mapping[int, Device],
        not_tasks: Collection[int] = (),
        lost: bool = False,
        final: bool = False,
    ) -> None:
        """Take in a batch, the last one if ``final``, and the windows of tasks that run or ended since the last call.

        Read the windows *after* the flush, and those of tasks that run before those that ended, so that none is missed
        in between. Calls of threads in ``not_tasks`` never belong to a task. If records were ``lost`` since the last
        call, or the meter gave way to a profiler, missing records are not waited for.
        """
        self._devices.update(devices)
        self._tasks.see(windows)
        self.known_until = max(self.known_until, batch.known_until)
        batch = replace(batch, operations=self._kernels.numbered(batch.operations, batch.names))
        joined = self._attribution.join(batch, not_tasks=not_tasks, lost=lost, final=final)
        for identity, ns in batch.bounds.items():
            bounded = self._tasks.find(identity)
            if bounded is not None:
                bounded.bound = (bounded.bound or 0) + ns
            self._bounds[UNATTRIBUTED if bounded is None else bounded.prefix] += ns
        self._open.update((task.number, task) for task in self._tasks.opened)
        self._tasks.opened.clear()
        self._count_kernels(joined.work)
        self._take(joined)
        until = self.known_until
        if not final and len(self._pending) <= MAX_PENDING:
            asking_since = max(self._tasks.asking_since(until), until - MAX_CALL)
            until = min(joined.complete_until, asking_since)
        if until > self._counted_until:
            self._count_until(until)
        self._finalize_waits()
        self._count_hidden()
        self._forget()

    def uses(self) -> dict[TaskId, GpuUse]:
        """GPU waits of the tasks for which they became known since the last call.

        A task that ended before :attr:`known_until` and was never returned was in no call that waits.
        """
        uses, self._uses = self._uses, {}
        return uses

    def totals(self) -> GpuTotals:
        """Devices, kernels, hidden time, coverage and bounds; fields that describe the meter keep their defaults."""
        return GpuTotals(
            devices=tuple(self._device_totals(number) for number in sorted(self._devices.keys() | self._times.keys())),
            kernels=self._kernels.totals(),
            hidden=dict(+self._hidden),
            kernel_ns=self._kernel_ns,
            attributed_ns=self._attributed_ns,
            bounds=dict(+self._bounds),
        )

    def _device_totals(self, number: int) -> DeviceTotals:
        device = self._devices.get(number) or Device(f"device {number}")
        time, elapsed = self._times.get(number) or _DeviceTime(), self._counted_until - self._since
        return DeviceTotals(
            *(device.uuid, device.name, elapsed, time.kernels, time.copies, elapsed - time.kernels - time.copies),
            shares=dict(+time.shares),
            unattributed=time.unattributed,
            tail=time.tail,
            late=time.late,
        )

    def _prefix(self, key: Any) -> str:
        """Prefix under which a task is counted."""
        prefix = self._prefix_of(key)
        if prefix not in self._prefixes and len(self._prefixes) >= MAX_APART:
            prefix = OTHER
        self._prefixes.add(prefix)
        return prefix

    def _count_kernels(self, work: NDArray[np.void]) -> None:
        kernels = work[work["activity"] == KERNEL]
        durations = kernels["end"] - kernels["start"]
        self._kernel_ns += int(durations.sum())
        self._attributed_ns += int(durations[kernels["owner"] != NOBODY].sum())
        for number, name, launches, ns in self._kernels.sums(kernels):
            task = self._tasks.numbered(number)
            self._kernels.add(UNATTRIBUTED if task is None else task.prefix, name, launches, ns)

    def _take(self, joined: Joined) -> None:
        """Keep the work and waits of a batch, except in time that has been counted."""
        work = joined.work
        late = work["start"] < self._counted_until
        if late.any():
            begin, end = np.maximum(work["start"], self._since), np.minimum(work["end"], self._counted_until)
            for number in ranked(work["device"][late])[0].tolist():
                rows = late & (work["device"] == number) & (end > begin)
                self._times[number].late += int((end - begin)[rows].sum())
            work["start"] = np.maximum(work["start"], self._counted_until)
            work = work[work["end"] > self._counted_until]
        self._pending = np.concatenate([self._pending, work]) if len(self._pending) else work
        self._waits = np.concatenate([self._waits, joined.waits])
        for number, end in zip(joined.callers.tolist(), joined.last_calls.tolist(), strict=True):
            if task := self._tasks.numbered(number):
                task.last_call = max(task.last_call, end)

    def _count_until(self, until: int) -> None:
        start, self._counted_until = self._counted_until, until
        stops = self._stops(self._pending["owner"])
        for number in ranked(self._pending["device"])[0].tolist():
            on = self._pending["device"] == number
            self._share(number, self._pending[on], stops[on], start, until)
        stretches = label(self._pending, stops, start, until)
        self._count_busy(stretches)
        self._stretches = np.concatenate([self._stretches, stretches])
        left = self._pending[self._pending["end"] > until]
        left["start"] = np.maximum(left["start"], until)
        self._pending = left

    def _share(self, device: int, work: NDArray[np.void], stops: Int64, start: int, until: int) -> None:
        kernels, copies, owners, shares = divide(work, stops, start, until)
        time = self._times[device]
        time.kernels += kernels
        time.copies += copies
        time.tail += int(shares[:, 1].sum())
        for number, ns in zip(owners.tolist(), shares.sum(axis=1).tolist(), strict=True):
            task = self._tasks.numbered(number)
            if task is None:
                time.unattributed += ns
            else:
                time.shares[task.prefix] += ns

    def _count_busy(self, stretches: NDArray[np.void]) -> None:
        busy = stretches[stretches["label"] != OTHERS_KERNEL]
        owners, which = ranked(busy["owner"])
        sums = np.bincount(which, busy["end"] - busy["start"], len(owners)).astype(np.int64)
        for number, ns in zip(owners.tolist(), sums.tolist(), strict=True):
            if task := self._tasks.numbered(number):
                task.busy += ns

    def _stops(self, owners: Int64) -> Int64:
        numbers, which = ranked(owners)
        tasks = [self._tasks.numbered(number) for number in numbers.tolist()]
        stops = np.array([FOREVER if task is None else task.stop for task in tasks], np.int64)
        return stops[which]

    def _finalize_waits(self) -> None:
        """Add waits to the use of their tasks, once their time has been counted or the task has ended."""
        ended = [task for task in self._open.values() if not task.known and task.stop <= self.known_until]
        if len(self._waits):
            over = np.isin(self._waits["owner"], np.array([task.number for task in ended], np.int64))
            ready = over | (self._waits["end"] <= self._counted_until)
            self._use(self._waits[ready], further=bool((self._waits["end"][over] > self._counted_until).any()))
            self._waits = self._waits[~ready]
        for task in ended:
            task.known = True
            if task.bound is not None:
                task.use = _bounded(task.use, task.bound)
            if any(task.use):
                self._uses[task.id] = task.use

    def _use(self, waits: NDArray[np.void], *, further: bool) -> None:
        tasks = [self._tasks.numbered(number) for number in waits["owner"].tolist()]
        used = np.array([self.known_until if task is None else task.used_until for task in tasks], np.int64)
        waits["start"] = np.maximum(np.maximum(waits["start"], used), self._since)
        waits["end"] = np.minimum(waits["end"], self._stops(waits["owner"]))
        waits = waits[waits["end"] > waits["start"]]
        if not len(waits):
            return
        stretches = self._stretches
        if further:
            # Some stretches in them may be missing, but nobody waits for these any longer.
            beyond = label(self._pending, self._stops(self._pending["owner"]), self._counted_until, self.known_until)
            stretches = np.concatenate([stretches, beyond])
        owners, uses = blocked(waits, stretches)
        last = np.zeros(len(owners), np.int64)
        np.maximum.at(last, np.searchsorted(owners, waits["owner"]), waits["end"])
        for number, (*parts, busy), end in zip(owners.tolist(), uses.tolist(), last.tolist(), strict=True):
            if task := self._tasks.numbered(number):
                task.use = GpuUse(*(old + new for old, new in zip(task.use, parts, strict=True)))
                task.busy_in_use += busy
                task.used_until = max(task.used_until, end)

    def _count_hidden(self) -> None:
        """Count the hidden GPU time of tasks, once their time has been counted up to their end."""
        for task in [task for task in self._open.values() if task.known and task.stop <= self._counted_until]:
            del self._open[task.number]
            self._closed[task.number] = task
            self._hidden[task.prefix] += max(task.busy - task.busy_in_use, 0)

    def _forget(self) -> None:
        self._forget_stretches()
        self._tasks.forget_windows(self.known_until - _SLACK)
        old = [task for task in self._closed.values() if task.stop < self._counted_until - MAX_AGE]
        if not old:
            return
        at_work = set(ranked(self._pending["owner"])[0].tolist())
        for task in old:
            if task.number not in at_work:
                self._tasks.forget(task)
                del self._closed[task.number]

    def _forget_stretches(self) -> None:
        """Keep stretches in which a thread may be in a call that waits: it is not known before it returns."""
        if not len(self._stretches):
            return
        owners, which = ranked(self._stretches["owner"])
        tasks = [self._tasks.numbered(number) for number in owners.tolist()]
        since = np.array([FOREVER if task is None or task.known else task.last_call for task in tasks], np.int64)
        for number, start in zip(self._waits["owner"].tolist(), self._waits["start"].tolist(), strict=True):
            row = np.searchsorted(owners, number)
            if row < len(owners) and owners[row] == number:
                since[row] = min(since[row], start)
        self._stretches = self._stretches[self._stretches["end"] > since[which]]
        if len(self._stretches) > MAX_STRETCHES:
            self._stretches = self._stretches[np.argsort(self._stretches["end"], kind="stable")[-MAX_STRETCHES:]]


def _bounded(use: GpuUse, bound: int) -> GpuUse:
    """Use of a task with an upper bound for its kernels: its thread waited for them at most that long."""
    whole = use.kernel + use.contention + use.copy + use.wait
    kernel = min(bound, whole)
    return GpuUse(kernel=kernel, wait=whole - kernel, spun=use.spun)
