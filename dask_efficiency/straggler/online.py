"""StragglerWatch: tells which workers take longer than their peers for the same work, while it goes on."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu.totals import KernelTotals
from dask_efficiency.straggler.causes import Beside, Symptoms, cause_of_slow_tasks, who_takes_the_cpu
from dask_efficiency.straggler.finding import Cause, Evidence, Finding, confidence_of
from dask_efficiency.straggler.intervals import (
    BESIDE_TASKS,
    CORE_WAIT,
    CPU_SHARE,
    DISK,
    DURATION,
    GPU_KERNEL,
    MEMORY,
    RECEIVE,
    SEND,
    SIGNALS,
    Slot,
    SlotBook,
)
from dask_efficiency.straggler.peers import Floats, healthy_spread, median_of_others
from dask_efficiency.straggler.signals import LIVE
from dask_efficiency.straggler.task_rates import Pace

#: Slots that a watch remembers: enough for four minutes at 2.5 s.
MAX_SLOTS = 96

#: What lasts: a worker is judged by the last slots that hold this many tasks, and by no fewer slots than these; or,
#: where tasks are rare, by the whole window if it holds so many.
WINDOW_TASKS = 20
MIN_SLOTS = 7
FEW_TASKS = 5
FEW_SLOTS = 3

#: Of those slots, the share in which the worker must be worse than its peers; and below which it is cleared.
PERSISTENT = 0.8
CLEARED = 0.5

#: How far from its peers, in units of their spread, times sqrt(2 ln(workers x signals)): so far does none of them come
#: by chance. The factor is for spreads that are estimated from few workers.
SENSITIVITY = 1.1

#: With few workers it takes more: sqrt(1 + this / peers) times as much.
FEW_WORKERS = 1.0

#: A flagged worker is cleared below this part of what flags one.
HYSTERESIS = 0.5

#: By signal: how much worse than its peers a worker must be, and what spread there always is.
MIN_EFFECT = np.array([signal.least_effect for signal in LIVE.values()])
FLOOR = np.array([signal.floor for signal in LIVE.values()])

#: Signals of which the level is the logarithm of how many times as long something takes.
RATIOS = tuple(place for place, signal in enumerate(LIVE.values()) if signal.ratio)

#: Signals that are slowness only where tasks take longer too: who computes less of a shorter time is not slow, and
#: kernels of larger inputs take longer.
ONLY_WITH_DURATION = [CPU_SHARE, CORE_WAIT, BESIDE_TASKS, GPU_KERNEL]

#: Slower kernels are why tasks take longer, if they are slower by this part of it at least (in logarithms): a task has
#: other parts, too, which are not.
GPU_EXPLAINS = 0.8

#: Weight of a slot in the history of the spread, and how much wider than it the spread may seem.
SPREAD_LEARNING = 0.05
MAX_SPREAD = 3.0

#: Numbers that a poll may compare, or one piece more: 2 ms.
MAX_A_POLL = 3_000

#: Past findings that are kept.
MAX_PAST = 200

#: Findings and workers of a host that is judged as a whole.
MIN_WORKERS_OF_HOST = 2

#: What takes the CPU from a worker slows its disk and its transfers by this much more than its tasks at most (the
#: logarithm of how many times as long). What keeps the GIL slows them without bounds: each call waits for it again.
SLOWED_WITH_TASKS = {Cause.CONTENTION: math.log(2.5), Cause.SLOW_CPU: math.log(2.5), Cause.GIL: math.inf}

#: Causes that nothing but the tasks' duration speaks for. Which worker has which tasks is not always chance: so the
#: worker must differ by more than the tasks of a prefix do among themselves (one standard deviation).
BY_DURATION_ALONE = frozenset({Cause.SLOW_CPU, Cause.UNKNOWN})

#: Signals that a whole host can have.
_OF_HOSTS = (DURATION, CPU_SHARE, RECEIVE, SEND)


#: What the last slots said, in turns: the first axis is slots.
Ring = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Change:
    """What a slot brought: stragglers that were found, and those that are so no more."""

    found: tuple[Finding, ...] = ()
    cleared: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Past:
    """A finding that is over, and when it ended, in seconds since the epoch."""

    finding: Finding
    until: float


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """By signal and worker what the last slots say together."""

    #: NaN where there is not enough to judge by.
    mean: Floats
    z: Floats
    tasks: Floats
    #: The share of the slots in which it is worse than its peers.
    adverse: Floats
    #: By worker, how far the tasks of a prefix are apart: the standard deviation of the logarithm of their seconds.
    apart: Floats
    limit: float

    @classmethod
    def of(cls, workers: int, signals: int) -> _Judged:
        """Nothing yet of so many workers, by so many signals of which anything is known."""
        mean, z, tasks, adverse = np.full((4, len(SIGNALS), workers), np.nan)
        return cls(mean, z, tasks, adverse, np.full(workers, np.nan), _limit(workers, signals))

    def only(self, workers: NDArray[np.bool_]) -> _Judged:
        """The same of some of them."""
        mean, z, tasks, adverse = (array[:, workers] for array in (self.mean, self.z, self.tasks, self.adverse))
        return _Judged(mean, z, tasks, adverse, self.apart[workers], self.limit)


class StragglerWatch:
    """Finds stragglers from the workers' paces, slot by slot.

    A worker is a straggler when in its last 20 tasks, and 7 slots, or in the last four minutes, it was further from its
    peers than chance brings any of them, by a tenth at least, in four of five slots. Where only the duration of its
    tasks says so, it must be further than the tasks of a prefix are from each other. Only workers of the same group are
    compared. With two of them, or if more than half become slow, a worker's own history decides, if there is one.

    Parameters
    ----------
    window_seconds
        How far back it looks.
    """

    def __init__(self, *, window_seconds: float = 240.0) -> None:
        self._window_ns = round(window_seconds * 1e9)
        self._book = SlotBook()
        self._hosts: dict[str, str] = {}
        self._groups: dict[str, Hashable] = {}
        self._lags: dict[str, float] = {}
        self._last: int | None = None
        #: What goes on since a slot ended, when that was, and rows that have another worker since.
        self._work: Generator[int, None, Change] | None = None
        self._ending = 0
        self._newcomers: list[int] = []
        #: When the remembered slots ended, newest last.
        self._ends: deque[int] = deque(maxlen=MAX_SLOTS)
        self._begins: deque[int] = deque(maxlen=MAX_SLOTS)
        self._position = 0
        capacity = self._book.capacity
        #: (slots, signals, rows) and (slots, rows).
        self._residual, self._variance, self._tasks = (_ring(len(SIGNALS), capacity) for _ in range(3))
        self._share, self._apart, self._lag = (_ring(capacity) for _ in range(3))
        self._spread: dict[Hashable, Floats] = {}
        self._flags: dict[tuple[str, str], Finding] = {}
        #: Findings that are over, oldest first.
        self.past: deque[Past] = deque(maxlen=MAX_PAST)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The stragglers of now, the most certain first."""
        return tuple(sorted(self._flags.values(), key=lambda finding: -finding.score))

    @property
    def comparing(self) -> bool:
        """Whether a slot is over, and its comparison goes on at the next poll."""
        return self._work is not None

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays: 23 kB a worker."""
        rings = (self._residual, self._variance, self._tasks, self._share, self._apart, self._lag)
        return self._book.nbytes + sum(ring.nbytes for ring in rings)

    def findings_between(self, start: float, stop: float) -> tuple[Finding, ...]:
        """Those of now and of the past that were slow at some time in an interval, the most certain first."""
        past = (past.finding for past in self.past if past.until >= start and past.finding.since <= stop)
        now = (finding for finding in self._flags.values() if finding.since <= stop)
        return tuple(sorted((*past, *now), key=lambda finding: -finding.score))

    # -- what happens to workers -------------------------------------------------------------

    def joined(self, worker: str, *, host: str, group: Hashable, at: int) -> None:
        """A worker is there; ``group`` is equal for those that can be compared, such as have as many threads."""
        self._book.joined(worker, group, at=at)
        self._hosts[worker], self._groups[worker] = host, group
        self._fit()
        row = self._book.row_of(worker)
        if self._work is not None:
            self._newcomers.append(row)
        for ring in (self._residual, self._variance, self._tasks):
            ring[:, :, row] = np.nan
        for ring in (self._share, self._apart, self._lag):
            ring[:, row] = np.nan

    def left(self, worker: str, *, now: float) -> None:
        """A worker is not there any more; ``now`` in seconds since the epoch."""
        self._book.left(worker)
        self._hosts.pop(worker, None)
        self._groups.pop(worker, None)
        self._lags.pop(worker, None)
        there = set(self._groups.values())
        self._spread = {group: spread for group, spread in self._spread.items() if group in there}
        finding = self._flags.pop((worker, ""), None)
        if finding is not None:
            self.past.append(Past(finding, now))

    def receive(
        self,
        worker: str,
        pace: Pace,
        *,
        at: int,
        paused: float = 0.0,
        spilling: float = 0.0,
        held: float = math.nan,
        lag: float = math.nan,
        kernels: Sequence[KernelTotals] = (),
    ) -> None:
        """What a heartbeat brought.

        Parameters
        ----------
        worker, pace
            Whose, and its totals.
        at
            Monotonic nanoseconds.
        paused, spilling
            Seconds so far that its slots were paused, and spilling.
        held
            Bytes of the results that it holds now; NaN where that is not known.
        lag
            Seconds between two turns of its event loop; NaN where that is not known.
        kernels
            Totals of its GPUs' kernels, those first that took most time.
        """
        if worker not in self._hosts:  # its last heartbeat came late
            return
        self._book.receive(worker, pace, at=at, paused=paused, spilling=spilling, held=held, kernels=kernels)
        self._lags[worker] = lag

    # -- judging -----------------------------------------------------------------------------

    def poll(self, *, at: int, now: float, slot_seconds: float) -> Change:
        """End the slot, if it has lasted long enough, and judge.

        Parameters
        ----------
        at
            Monotonic nanoseconds.
        now
            Seconds since the epoch.
        slot_seconds
            Two heartbeats at least, so that every worker has said something.
        """
        if self._last is None:
            self._last = at
        if self._work is None:
            if at - self._last < slot_seconds * 1e9 or not self._hosts:
                return Change()
            self._ending = at
            self._newcomers.clear()
            self._work = self._compare_and_judge(at, now)
        done = 0
        try:
            while done < MAX_A_POLL:
                done += next(self._work)
        except StopIteration as ended:
            self._work = None
            change: Change = ended.value
            return change
        return Change()

    def _compare_and_judge(self, at: int, now: float) -> Generator[int, None, Change]:
        """All that follows when a slot is over, piece by piece; between two of them workers may come and go."""
        self._remember((yield from self._book.pieces(at=at, learn=self._fit_to_learn_from())))
        found: dict[tuple[str, str], Finding] = {}
        groups: dict[Hashable, list[str]] = {}
        for worker, group in self._groups.items():
            groups.setdefault(group, []).append(worker)
        for group, workers in groups.items():
            workers.sort(key=self._book.row_of)
            rows = np.array([self._book.row_of(worker) for worker in workers])
            judged = yield from self._judge(group, rows, at)
            if judged is None:
                continue
            self._learn(group, judged)
            there = np.array([self._groups.get(worker) == group for worker in workers])
            if not there.all():
                workers = [worker for worker, is_there in zip(workers, there, strict=True) if is_there]
                rows, judged = rows[there], judged.only(there)
            if workers:
                found.update(self._flagged(workers, rows, judged, at, now))
        return self._changed(found, now)

    def _fit_to_learn_from(self) -> NDArray[np.bool_]:
        """By row: who seems slow now must not become the measure of itself."""
        fit = np.ones(self._book.capacity, bool)
        if self._ends:
            with np.errstate(invalid="ignore"):
                fit &= ~(self._residual[(self._position - 1) % MAX_SLOTS, DURATION] > MIN_EFFECT[DURATION])
        for worker, _ in self._flags:
            if worker in self._groups:
                fit[self._book.row_of(worker)] = False
        return fit

    def _remember(self, slot: Slot) -> None:
        place, size = self._position, slot.share.size
        for ring, values in (
            (self._residual, slot.residual),
            (self._variance, slot.variance),
            (self._tasks, slot.tasks),
            (self._share, slot.share),
            (self._apart, slot.apart),
        ):
            ring[place] = np.nan  # workers that came meanwhile
            ring[place][..., :size] = values
            ring[place][..., self._newcomers] = np.nan
        self._newcomers.clear()
        self._lag[place] = np.nan
        for worker, lag in self._lags.items():
            self._lag[place, self._book.row_of(worker)] = lag
        self._position = (place + 1) % MAX_SLOTS
        self._begins.append(self._last if self._last is not None else self._ending)
        self._ends.append(self._ending)
        self._last = self._ending

    def _newest_first(self, at: int) -> list[int]:
        """Places of the remembered slots within the window."""
        count = sum(at - end < self._window_ns for end in self._ends)
        return [(self._position - 1 - back) % MAX_SLOTS for back in range(count)]

    def _judge(self, group: Hashable, rows: NDArray[np.intp], at: int) -> Generator[int, None, _Judged | None]:
        """Judge by one signal after the other."""
        order = self._newest_first(at)
        if len(order) < FEW_SLOTS:
            return None
        long_enough = at - self._begins[-len(order)] >= 0.8 * self._window_ns
        signals = range(len(SIGNALS) if self._book.sees_kernels else GPU_KERNEL)
        judged = _Judged.of(len(rows), len(signals))
        # A slice, where they are all there, is several times as quick.
        whole = rows[-1] - rows[0] + 1 == len(rows)
        place: slice | NDArray[np.intp] = slice(rows[0], rows[-1] + 1) if whole else rows
        for signal in signals:
            rings = (self._residual, self._variance, self._tasks)
            residual, variance, tasks = (ring[order, signal][:, place].astype(np.float64) for ring in rings)
            known = np.isfinite(residual)
            tasks = np.where(known, tasks, 0.0)
            before, slots = np.cumsum(tasks, axis=0) - tasks, np.cumsum(known, axis=0) - known
            inside = known & ((before < WINDOW_TASKS) | (slots < MIN_SLOTS))
            weight = np.where(inside, tasks, 0.0)
            total, count = weight.sum(axis=0), inside.sum(axis=0)
            # What a GPU did comes late and in few slots, where it launches few kernels; alone it flags nobody.
            least = FEW_SLOTS if signal == GPU_KERNEL else MIN_SLOTS
            complete = (total >= WINDOW_TASKS) & (count >= least)
            if long_enough:
                complete |= (total >= FEW_TASKS) & (count >= FEW_SLOTS)
            with np.errstate(divide="ignore", invalid="ignore"):
                share = weight / total
                mean = (share * np.where(inside, residual, 0.0)).sum(axis=0)
                noise = (share**2 * np.where(inside, variance, 0.0)).sum(axis=0)
                if signal == DURATION:
                    apart = self._apart[order][:, place].astype(np.float64)
                    judged.apart[:] = np.sqrt((share * np.where(inside, np.nan_to_num(apart), 0.0)).sum(axis=0))
                noise = np.maximum(noise, _noise_over_time(residual, mean, share, inside))
                worse = inside & (residual > MIN_EFFECT[signal] / 2)
                judged.adverse[signal] = worse.sum(axis=0) / count
                judged.mean[signal] = mean = np.where(complete, mean, np.nan)
                judged.tasks[signal] = total
                judged.z[signal] = mean / np.sqrt(self._scale(group, signal, mean) ** 2 + noise)
            yield residual.size // 16
        return judged

    def _scale(self, group: Hashable, signal: int, mean: Floats) -> float:
        """How far healthy workers are apart."""
        usual = float(self._spread[group][signal]) if group in self._spread else math.nan
        bounded = np.fmin(healthy_spread(mean), MAX_SPREAD * usual)
        return math.hypot(np.nan_to_num(np.fmax(usual, bounded)), FLOOR[signal])

    def _learn(self, group: Hashable, judged: _Judged) -> None:
        """The spread of a time in which nobody seems slow is what is usual."""
        with np.errstate(invalid="ignore"):
            suspect = (judged.mean >= MIN_EFFECT[:, None]) & (judged.adverse >= CLEARED)
        seen = np.array([healthy_spread(row) for row in judged.mean])
        seen[suspect.any(axis=1)] = np.nan
        usual = self._spread.get(group, seen)
        usual = np.where(np.isnan(usual), seen, usual)
        square = usual**2 + SPREAD_LEARNING * (np.where(np.isnan(seen), usual, seen) ** 2 - usual**2)
        self._spread[group] = np.sqrt(square)

    # -- findings ----------------------------------------------------------------------------

    def _flagged(
        self, workers: list[str], rows: NDArray[np.intp], judged: _Judged, at: int, now: float
    ) -> dict[tuple[str, str], Finding]:
        found = {}
        for i in np.flatnonzero(self._suspects(workers, judged)):
            finding = self._finding(workers, rows, judged, int(i), at, now)
            least = judged.apart[i] * (HYSTERESIS if self._is_flagged(workers[i]) else 1.0)
            if finding.cause not in BY_DURATION_ALONE or not judged.mean[DURATION, i] < least:
                found[workers[i], ""] = finding
        return self._by_host(workers, found, judged)

    def _is_flagged(self, worker: str) -> bool:
        return (worker, "") in self._flags or ("", self._hosts[worker]) in self._flags

    def _suspects(self, workers: list[str], judged: _Judged) -> NDArray[np.bool_]:
        """Who is flagged now: what flags a worker anew is more than what keeps it so."""
        kept = np.array([self._is_flagged(worker) for worker in workers])
        if not kept.any() and not (judged.z >= judged.limit).any():
            return kept
        ease = np.where(kept, HYSTERESIS, 1.0)[None, :]
        with np.errstate(invalid="ignore"):
            effect = judged.mean >= MIN_EFFECT[:, None] * ease
            lasting = judged.adverse >= np.where(kept, CLEARED, PERSISTENT)[None, :]
            stands_out: NDArray[Any] = (judged.z >= judged.limit * ease) & effect & lasting
            stands_out[ONLY_WITH_DURATION] &= effect[DURATION]
        return np.asarray(stands_out.any(axis=0))

    def _finding(
        self, workers: list[str], rows: NDArray[np.intp], judged: _Judged, i: int, at: int, now: float
    ) -> Finding:
        relative = np.where(judged.mean[:, i] >= MIN_EFFECT / 2, judged.z[:, i], -np.inf)
        if not judged.mean[DURATION, i] > 0:
            relative[ONLY_WITH_DURATION] = -np.inf
        relative = np.nan_to_num(relative, nan=-np.inf)
        symptoms = self._symptoms(rows, i, relative >= judged.limit)
        main, cause = _cause(relative, judged.mean[:, i], judged.limit, symptoms)
        score = float(max(relative.max() / judged.limit, HYSTERESIS))
        known = self._flags.get((workers[i], ""))
        return Finding(
            worker=workers[i],
            host=self._hosts[workers[i]],
            cause=cause,
            score=score,
            confidence=confidence_of(score),
            since=known.since if known is not None else now - (at - self._since(int(rows[i]), main, at)) / 1e9,
            effect=_effect(judged.mean[:, i], main),
            evidence=_evidence(judged, i, relative, symptoms.share),
        )

    def _since(self, row: int, signal: int, at: int) -> int:
        """When the worker became worse than its peers, as far as slots are remembered."""
        since, misses = at, 0
        begins = list(self._begins)[::-1]
        for place, begin in zip(self._newest_first(at), begins, strict=False):
            residual = self._residual[place, signal, row]
            if np.isnan(residual):
                continue
            if residual > MIN_EFFECT[signal] / 2:
                since, misses = begin, 0
            else:
                misses += 1
                if misses > 1:
                    break
        return since

    def _symptoms(self, rows: NDArray[np.intp], i: int, outstanding: NDArray[np.bool_]) -> Symptoms:
        recent = (self._position - 1 - np.arange(min(len(self._ends), MIN_SLOTS))) % MAX_SLOTS

        def beside(ring: Ring) -> Beside:
            values = ring[np.ix_(recent, rows)].astype(np.float64)
            known = np.isfinite(values)
            count = known.sum(axis=0)
            mean = np.where(count > 0, np.where(known, values, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)
            return Beside(float(mean[i]), float(median_of_others(mean[None, :])[0, i]))

        def lately(signal: int) -> float:
            known = self._residual[recent, signal, rows[i]]
            known = known[np.isfinite(known)]
            return float(known.mean()) if len(known) else math.nan

        return Symptoms(
            share=beside(self._share),
            lag=beside(self._lag),
            core_wait=lately(CORE_WAIT),
            beside_tasks=lately(BESIDE_TASKS),
            disk=bool(outstanding[DISK]),
            network=bool(outstanding[RECEIVE] or outstanding[SEND]),
        )

    def _by_host(
        self, workers: list[str], found: dict[tuple[str, str], Finding], judged: _Judged
    ) -> dict[tuple[str, str], Finding]:
        """Findings of hosts in place of those of their workers, where all of a host's workers are slow."""
        hosts: dict[str, list[int]] = {}
        for i, worker in enumerate(workers):
            hosts.setdefault(self._hosts[worker], []).append(i)
        if len(hosts) < 2:
            return found
        result = dict(found)
        for host in {finding.host for finding in found.values()}:
            own = hosts[host]
            if len(own) < MIN_WORKERS_OF_HOST or 2 * len(own) > len(workers):
                continue
            signals = [s for s in _OF_HOSTS if (judged.adverse[s, own] >= CLEARED).all()]
            if not signals or not np.isfinite(judged.mean[signals[0], own]).all():
                continue
            of_host = [found[workers[i], ""] for i in own if (workers[i], "") in found]
            strongest = max(of_host, key=lambda finding: finding.score)
            if 2 * len(of_host) < len(own):
                continue
            for finding in of_host:
                del result[finding.worker, ""]
            effect = float(np.exp(np.mean(judged.mean[DURATION, own]))) if DURATION in signals else strongest.effect
            result["", host] = replace(
                strongest, worker="", effect=effect, since=min(finding.since for finding in of_host)
            )
        return result

    def _changed(self, found: dict[tuple[str, str], Finding], now: float) -> Change:
        known = self._flags
        self._flags = found
        cleared = tuple(finding for key, finding in known.items() if key not in found)
        self.past.extend(Past(finding, now) for finding in cleared)
        return Change(tuple(finding for key, finding in found.items() if key not in known), cleared)

    def _fit(self) -> None:
        """Make the rings as wide as the book."""
        more = self._book.capacity - self._residual.shape[-1]
        if more <= 0:
            return
        for name in ("_residual", "_variance", "_tasks", "_share", "_apart", "_lag"):
            ring = getattr(self, name)
            empty = np.full((*ring.shape[:-1], more), np.nan, np.float32)
            setattr(self, name, np.concatenate([ring, empty], axis=-1))


def _limit(workers: int, signals: int) -> float:
    """How far from its peers none of so many healthy workers comes: the fewer, the less is known of their spread."""
    by_chance = math.sqrt(2 * math.log(max(2, workers) * signals))
    return SENSITIVITY * by_chance * math.sqrt(1 + FEW_WORKERS / max(1, workers - 1))


def _noise_over_time(residual: Floats, mean: Floats, share: Floats, inside: NDArray[np.bool_]) -> Floats:
    """Variance of the means as their slots tell it: half from the worker's own, half from its peers'.

    It holds whatever the tasks are like, and what the system does to all of them for a while.
    """
    squares = (share**2).sum(axis=0)
    apart = (share * np.where(inside, residual - mean, 0.0) ** 2).sum(axis=0)
    own = np.where(squares < 1, apart * squares / (1 - squares), np.nan)
    usual = np.median(own[np.isfinite(own)]) if np.isfinite(own).any() else math.nan
    return np.asarray(np.nan_to_num((own + usual) / 2))


def _ring(*shape: int) -> Ring:
    return np.full((MAX_SLOTS, *shape), np.nan, np.float32)


def _cause(relative: Floats, mean: Floats, limit: float, symptoms: Symptoms) -> tuple[int, Cause]:
    """The signal to tell of, and the cause: of several what lies deepest, as a full memory slows tasks too.

    A process that lacks the CPU writes and sends more slowly as well, but not by much more than its tasks.
    """
    of_tasks = max(relative[DURATION], *relative[ONLY_WITH_DURATION])
    if relative[GPU_KERNEL] >= limit * HYSTERESIS and mean[GPU_KERNEL] >= GPU_EXPLAINS * mean[DURATION]:
        return DURATION, Cause.GPU
    of_cpu = cause_of_slow_tasks(symptoms) if of_tasks >= limit * HYSTERESIS else who_takes_the_cpu(symptoms)
    expected = max(mean[DURATION], 0.0) + SLOWED_WITH_TASKS[of_cpu] if of_cpu in SLOWED_WITH_TASKS else 0.0
    if relative[DISK] >= limit and mean[DISK] >= expected:
        return DISK, Cause.DISK
    if relative[MEMORY] >= limit:
        return MEMORY, Cause.MEMORY
    network = RECEIVE if relative[RECEIVE] >= relative[SEND] else SEND
    if relative[network] >= limit and mean[network] >= expected and of_tasks < limit:
        return network, Cause.NETWORK
    if of_cpu is not None and max(of_tasks, relative[DISK], relative[network]) > -math.inf:
        return DURATION, of_cpu
    others = (DISK, Cause.DISK), (MEMORY, Cause.MEMORY), (network, Cause.NETWORK), (DURATION, Cause.UNKNOWN)
    return max(others, key=lambda other: relative[other[0]])


def _effect(mean: Floats, main: int) -> float | None:
    """How many times as long it takes."""
    if main == MEMORY:
        return float(1.0 / (1.0 - min(max(mean[MEMORY], 0.0), 0.99)))
    return float(np.exp(mean[main])) if np.isfinite(mean[main]) else None


def _evidence(judged: _Judged, i: int, relative: Floats, share: Beside) -> tuple[Evidence, ...]:
    """The signals that say so, each beside the peers."""
    shown = []
    for signal in np.argsort(-relative):
        if not relative[signal] >= judged.limit * HYSTERESIS:
            break
        others = np.delete(judged.mean[signal], i)
        others = others[np.isfinite(others)]
        if not len(others):
            others = np.zeros(1)
        middle = np.median(others)
        values = np.array([judged.mean[signal, i], 0.0, others.min() - middle, others.max() - middle])
        if signal == CPU_SHARE:
            usual = share.peers if math.isfinite(share.peers) else 0.0
            values = np.clip(usual - values, 0.0, 1.0)[[0, 1, 3, 2]]
        elif signal in RATIOS:
            values = np.exp(values)
        else:
            values = np.maximum(values + middle, 0.0)
        value, peers, low, high = values.tolist()
        z, tasks = float(judged.z[signal, i]), int(judged.tasks[signal, i])
        shown.append(Evidence(SIGNALS[signal], value, peers, low, high, z, tasks))
    return tuple(shown)
