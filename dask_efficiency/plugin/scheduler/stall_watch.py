"""StallWatch: finds work that stands still while it does, by rules that are relative to how long things take there.

All that is read while nothing is suspected is what Dask's scheduler knows anyway: how long tasks have run, by the last
heartbeats; how long those of their prefix took; when a task last changed its state; and which tasks no worker may run.
No task costs anything, and a look at a thousand workers, every few seconds, some milliseconds. Only where that looks as
if something stood still are the workers asked what their threads do, and again a while later: who is at another line by
then is at work.

- A task is long from :data:`TIMES` times the mean of its prefix, and ten heartbeats. It stands still if it waits at the
  same line in both looks. One that computes, or sleeps as it was told to, may just have more to do: it takes
  :data:`TIMES_COMPUTING` times the mean, and most of the time since work began; and so does one that waits for other
  tasks or a shuffle, while anything changes.
- Where no task has changed its state for long, all that run are suspected, of prefixes of which none ended too. If all
  of them wait for tasks, and others find no thread, they wait for each other.
- A worker is silent from so many heartbeats that do not come. If the thread beside its event loop answers, that is
  blocked, by the call that it is in; else the process gets no turn at all. Importing takes long where many do so: it
  stands still only if nothing of its stack moves, for as long as where nothing is known.

Rejected: a limit in seconds, which every site would have to set; and the median instead of the mean, which nobody keeps
on the scheduler: a mean is larger where a few tasks are longer, so that fewer are accused.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from time import monotonic
from typing import Any, NamedTuple

from distributed import Scheduler
from distributed.core import Status
from distributed.metrics import time
from distributed.scheduler import TaskState, WorkerState, heartbeat_interval

from dask_efficiency.accounts import stalls, waits
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.intake import fitting, number
from dask_efficiency.accounts.lines import Frame, Stack, blamed, has_nothing_to_do, is_import, place_of
from dask_efficiency.accounts.rows import MAX_APART
from dask_efficiency.accounts.stalls import KINDS, StalledWork, encode_stalls
from dask_efficiency.accounts.thread_looks import AWAITING, COMPUTING, LOOP, TASK, ThreadLook
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.names import STRAGGLERS_TOPIC
from dask_efficiency.plugin.scheduler.stack_questions import Answer, StackQuestions
from dask_efficiency.show.log import logger

#: Seconds between two looks of the watch, at least, and for each worker: some milliseconds of CPU every few seconds.
MIN_SECONDS, SECONDS_PER_WORKER = 1.0, 0.005
#: Heartbeats for which something stands still at least, and twice as many that do not come of a silent worker; and
#: where nothing is known of how long things take. By judgement: ten, of half a second on small clusters.
HEARTBEATS, UNKNOWN_HEARTBEATS = 10, 60
#: Multiples of the mean of its prefix from which a task is long: if it waits, and if it computes. By judgement.
TIMES, TIMES_COMPUTING = 20.0, 100.0
#: Share of the time since work began that a task which computes must have run for. By judgement.
MOST_OF_WORK = 0.75
#: Causes with which a task may be at work.
AT_WORK = frozenset({COMPUTING, AWAITING, "gil", "core", "throttled", "sleep"})
#: Places of waits for others, which may be at work: they are named by themselves if they stand still.
FOR_OTHERS = frozenset({waits.TASKS, waits.SHUFFLE})
#: Kinds that are told of each worker, as it is the worker that stands still.
OF_WORKERS = frozenset({stalls.PAUSED, stalls.SILENT, stalls.BLOCKED, stalls.FETCH})
#: Workers that are asked at a time, and tasks that are looked at. Guesses that bound the cost of a suspicion.
MAX_ASKED, MAX_TASKS = 100, 1_000


class _Running(NamedTuple):
    """Task that runs on a worker, by the last heartbeat."""

    ws: WorkerState
    ts: TaskState
    seconds: float
    #: Mean of its prefix; 0 if none has ended.
    usual: float


#: A stall, and the tasks of which one must still run for it to hold; none of a worker that does not run any.
_Seen = tuple[StalledWork, tuple[_Running, ...]]
#: States of tasks whose results nobody waits for any more.
_LET_GO = frozenset({"released", "forgotten"})


class StallWatch:
    """Watches a scheduler for work that stands still; after a failure the meter goes on without."""

    def __init__(
        self,
        scheduler: Scheduler,
        cluster: ClusterLedger,
        stacks: StackQuestions,
        call: Callable[[StalledWork], object] = lambda stall: None,
    ) -> None:
        self._scheduler, self._cluster, self._stacks, self._call = scheduler, cluster, stacks, call
        #: What stands still now, the most certain kinds first.
        self.found: tuple[StalledWork, ...] = ()
        #: What did so last, and until when.
        self._last: tuple[StalledWork, ...] = ()
        self._last_at = -math.inf
        #: What stood still until its tasks were let go, and when, while others went on.
        self._let_go: list[tuple[StalledWork, float]] = []
        self._guard = Guard("the watch for stalls", "dask_efficiency does not say what stands still")
        self._due = 0.0
        #: Number of transitions, and instants at which it last changed, work began, and workers were last there.
        self._moved, self._moved_at, self._began, self._manned_at = -1, 0.0, 0.0, 0.0
        #: Since when workers are paused with tasks that they do not start.
        self._paused: dict[str, float] = {}
        #: Workers that run nothing, though they have tasks and threads for them, while nothing changes.
        self._stuck: dict[str, WorkerState] = {}
        #: What the last looks at threads found, with the tasks that it holds for; who is asked, and when next.
        self._seen: list[_Seen] = []
        self._asking: asyncio.Task[None] | None = None
        self._ask_due = 0.0
        self._announced: set[tuple[str, str, Stack, str]] = set()

    def poll(self) -> None:
        """Look, if it is time to."""
        if (now := monotonic()) >= self._due:
            self._due = now + max(MIN_SECONDS, SECONDS_PER_WORKER * len(self._scheduler.workers))
            self._guard(self._look, now)

    @property
    def lately(self) -> tuple[StalledWork, ...]:
        """Work that stands still, or did until it was let go a moment ago, as by whoever interrupts a block."""
        since = monotonic() - HEARTBEATS * self._heartbeat
        return (
            *(self._last if self._last_at >= since else ()),
            *(stall for stall, at in self._let_go if at >= since),
        )

    def stop(self) -> None:
        """Ask nobody any more."""
        self._guard.close()
        if self._asking is not None:
            self._asking.cancel()

    @property
    def _heartbeat(self) -> float:
        return float(heartbeat_interval(len(self._scheduler.workers)))

    def _look(self, now: float) -> None:
        if not self._cluster.work.outstanding:
            self._began = self._manned_at = 0.0
            self._seen, self._paused, self.found = [], {}, ()
            self._announced.clear()
            return
        self._began = self._began or now
        if self._scheduler.transition_counter != self._moved:
            self._moved, self._moved_at = self._scheduler.transition_counter, now
        if self._scheduler.workers or not self._manned_at:
            self._manned_at = now
        patience, still = HEARTBEATS * self._heartbeat, now - max(self._moved_at, self._began)
        self._stuck = self._without_inputs() if still > patience else {}
        ended = [(stall, running) for stall, running in self._seen if not self._holds(stall, running)]
        self._seen = [one for one in self._seen if one not in ended]
        if let_go := [(stall, now) for stall, running in ended if any(one.ts.state in _LET_GO for one in running)]:
            self._let_go = let_go
        certain = [*self._unmanned(now), *self._unrunnable(), *self._on_paused(now, patience)]
        suspects = self._suspects(patience, still) if self._scheduler.workers else []
        silent = self._silent()
        if (suspects or silent or self._stuck) and now >= self._ask_due:
            self._ask_due = math.inf
            self._asking = asyncio.ensure_future(self._ask(suspects, silent, still))
        found = [*certain, *(stall for stall, _ in self._seen)]
        self.found = tuple(sorted(found, key=lambda one: (KINDS.index(one.kind), -one.tasks, -one.seconds)))
        # What ended by itself, as others go on, explains nothing of the run's end.
        self._last, self._last_at = self.found, now
        for stall in self.found:
            self._announce(stall)

    def _announce(self, stall: StalledWork) -> None:
        """Log a stall, send an event, and call the user's function, once; where workers are at fault, once for each."""
        workers = stall.workers[:MAX_ASKED] if stall.kind in OF_WORKERS else ("",)
        names = {(stall.kind, stall.prefix, stall.line, worker) for worker in workers}
        if not names <= self._announced and len(self._announced) < MAX_APART:
            self._announced |= names
            line = [f"{frame.function} ({place_of(frame)})" for frame in stall.line]
            where = ", ".join(filter(None, (stall.prefix, *stall.workers[:3], stall.detail, *line)))
            logger.warning("Work stands still (%s): %s", stall.kind, where)
            self._scheduler.log_event(STRAGGLERS_TOPIC, {"action": "stalled", "stalls": encode_stalls([stall])})
            self._call(stall)

    # -- what the scheduler knows ------------------------------------------------------------------

    def _unmanned(self, now: float) -> Iterator[StalledWork]:
        seconds = now - self._manned_at
        if not self._scheduler.workers and seconds > UNKNOWN_HEARTBEATS * self._heartbeat:
            tasks = self._scheduler.tasks
            yield StalledWork(stalls.NO_WORKERS, len(tasks), _most(tasks.values()), seconds=seconds)

    def _unrunnable(self) -> Iterator[StalledWork]:
        """Tasks that no worker may run, with what they ask for, and what there is."""
        tasks = self._scheduler.unrunnable
        if not tasks or not self._scheduler.running:  # such as paused ones only
            return
        first, since = next(iter(tasks.items()))
        seconds = monotonic() - since
        if seconds > 2 * HEARTBEATS * self._heartbeat:
            same = sum(ts.prefix is first.prefix for ts in islice(tasks, MAX_TASKS))
            yield StalledWork(stalls.NO_WORKER, same, _most([first]), seconds=seconds, detail=self._asked_for(first))

    def _asked_for(self, ts: TaskState) -> str:
        asked = []
        for name, amount in (ts.resource_restrictions or {}).items():
            most = max(self._scheduler.resources.get(name, {}).values(), default=0)
            there = f"at most {most:g} on one worker" if most else "on no worker"
            asked.append(f"{fitting(name)}={amount:g}, {there}")
        for kind, names in (("worker", ts.worker_restrictions), ("host", ts.host_restrictions)):
            if names:
                asked.append(f"{kind} {', '.join(map(fitting, islice(names, 3)))}")
        return fitting("; ".join(asked))

    def _on_paused(self, now: float, patience: float) -> Iterator[StalledWork]:
        """Tasks on workers that have been paused for long and run none; and all, where there are no others."""
        nobody = not self._scheduler.running
        stuck = {
            ws.address: ws
            for ws in self._scheduler.workers.values()
            if ws.status is Status.paused and (ws.processing or nobody) and not ws.executing
        }
        self._paused = {address: self._paused.get(address, now) for address in stuck}
        long = [stuck[address] for address, since in self._paused.items() if now - since > patience]
        if long:
            queued, unrunnable = self._scheduler.queued, self._scheduler.unrunnable
            waiting = [*(ws.processing for ws in long), *((queued, unrunnable) if nobody else ())]
            prefix, seconds = _most(chain(*waiting)), now - min(self._paused.values())
            yield StalledWork(stalls.PAUSED, sum(map(len, waiting)), prefix, _names(long), seconds)

    def _suspects(self, patience: float, still: float) -> list[_Running]:
        """Tasks that run for long, or while nothing has changed for long."""
        usual: dict[str, float] = {}
        found = []
        for ws in self._scheduler.workers.values():
            for ts, seconds in ws.executing.items():
                if seconds <= patience:
                    continue
                name = ts.prefix.name
                mean = usual[name] if name in usual else usual.setdefault(name, self._stacks.usual(name) or 0.0)
                if still > patience or (mean and seconds > TIMES * mean):
                    found.append(_Running(ws, ts, number(seconds) or 0.0, mean))
        return found

    def _silent(self) -> list[WorkerState]:
        """Workers with tasks whose heartbeats do not come."""
        limit = time() - 2 * HEARTBEATS * self._heartbeat
        return [ws for ws in self._scheduler.workers.values() if ws.last_seen < limit and ws.processing]

    def _holds(self, stall: StalledWork, running: tuple[_Running, ...]) -> bool:
        """True while what was seen may be so: its tasks run yet, or its worker is silent."""
        if not running:
            still = self._stuck.values() if stall.kind == stalls.FETCH else self._silent()
            return bool({fitting(ws.name) for ws in still}.intersection(stall.workers))
        return any(one.ts in one.ws.executing for one in running)

    # -- what workers say --------------------------------------------------------------------------

    async def _ask(self, suspects: list[_Running], silent: list[WorkerState], still: float) -> None:
        """Look at the threads of suspected workers twice, and keep what stood still in both looks."""
        try:
            asked = {one.ws.address: one.ws for one in suspects} | {ws.address: ws for ws in silent} | self._stuck
            addresses = [*islice(asked, MAX_ASKED)]
            before = await self._stacks.ask_all(addresses)
            await asyncio.sleep(4 * self._heartbeat)
            after = await self._stacks.ask_all(addresses)
            self._guard(self._conclude, suspects, silent, still, before, after)
        except Exception as error:
            self._guard.fail(error)
        finally:
            self._ask_due = monotonic() + HEARTBEATS * self._heartbeat

    def _conclude(
        self,
        suspects: list[_Running],
        silent: list[WorkerState],
        still: float,
        before: dict[str, Answer | str],
        after: dict[str, Answer | str],
    ) -> None:
        running = {(one.ws.address, fitting(one.ts.key)): one for one in suspects}
        waiting = [(running[place], look) for place, look in _unmoved(before, after).items() if place in running]
        self._seen = [*self._blocked(silent, before, after), *self._fetching(after)]
        tasks = [(one, look) for one, look in waiting if _place(look) == waits.TASKS]
        slots = sum(len(ws.executing) - len(ws.long_running) for ws in self._scheduler.workers.values())
        if tasks and len(tasks) >= slots and still > 0:
            self._seen += _grouped(stalls.DEADLOCK, tasks)
            return
        work = monotonic() - self._began
        long = [(one, look) for one, look in waiting if _long(one, look, still, work)]
        locks = [pair for pair in long if _place(pair[1]) == waits.DASK_LOCK]
        self._seen += _grouped(stalls.LOCK, locks, self._held_locks())
        self._seen += _grouped(stalls.TASK, [pair for pair in long if pair not in locks])

    def _blocked(
        self, silent: Collection[WorkerState], before: dict[str, Answer | str], after: dict[str, Answer | str]
    ) -> Iterator[_Seen]:
        """Workers whose event loop is blocked, with its call; and those that get no turn."""
        for ws in silent:
            answer = after.get(ws.address)
            if answer is None or ws.address not in self._scheduler.workers:
                continue
            tasks, prefix = len(ws.processing), _most(ws.processing)
            stall = StalledWork(stalls.SILENT, tasks, prefix, _names([ws]), time() - ws.last_seen)
            if not isinstance(answer, str):
                loop = _loop_of(answer)
                if loop is not None and has_nothing_to_do(loop.stack):
                    continue  # only its heartbeats are late
                if loop is not None and is_import(loop.stack):
                    then = _loop_of(before.get(ws.address, ""))
                    is_long = stall.seconds > UNKNOWN_HEARTBEATS * self._heartbeat
                    if not is_long or then is None or _has_moved(then, loop):
                        continue
                line, cause = ((), "") if loop is None else ((blamed(loop.stack),), loop.cause)
                stall = replace(stall, kind=stalls.BLOCKED, line=line, cause=cause)
            yield stall, ()

    def _without_inputs(self) -> dict[str, WorkerState]:
        """Workers that run nothing, though they have tasks, and threads for them."""
        workers = self._scheduler.workers.items()
        return {a: ws for a, ws in workers if ws.processing and not ws.executing and ws.status is Status.running}

    def _fetching(self, answers: dict[str, Answer | str]) -> Iterator[_Seen]:
        """Workers whose tasks wait for inputs that do not come."""
        for address, ws in self._stuck.items():
            answer = answers.get(address)
            if answer is None or isinstance(answer, str) or not answer.fetching:
                continue
            peers = [self._scheduler.workers[one] for one in answer.fetching if one in self._scheduler.workers]
            detail = f"from worker {', '.join(_names(peers))}" if peers else "from a worker that is gone"
            known = len(ws.processing), _most(ws.processing), _names([ws]), monotonic() - self._moved_at
            yield StalledWork(stalls.FETCH, *known, detail=fitting(detail)), ()

    def _held_locks(self) -> str:
        """Names of Dask's locks and semaphores that are taken, and waited for."""
        known: Any = self._scheduler.extensions.get("semaphores")
        if known is None:
            return ""
        pending = known.metrics["pending"]
        taken = (name for name, most in known.max_leases.items() if len(known.leases.get(name, ())) >= most)
        return fitting(", ".join(fitting(name) for name in taken if pending.get(name, 0) > 0))


def _most(tasks: Iterable[TaskState]) -> str:
    """Prefix of most of the first of these tasks."""
    prefixes = Counter(prefix_of(ts.prefix.name) for ts in islice(tasks, MAX_TASKS))
    return prefixes.most_common(1)[0][0] if prefixes else ""


def _names(workers: Iterable[WorkerState]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fitting(ws.name) for ws in workers))


def _unmoved(before: dict[str, Answer | str], after: dict[str, Answer | str]) -> dict[tuple[str, str], ThreadLook]:
    """Looks at tasks that are at the same line in two answers, by address and key."""

    def places(answers: dict[str, Answer | str]) -> dict[tuple[str, str], ThreadLook]:
        return {
            (address, look.key): look
            for address, answer in answers.items()
            if not isinstance(answer, str)
            for look in answer.looks
            if look.kind == TASK
        }

    then, now = places(before), places(after)
    return {
        place: look
        for place, look in now.items()
        if place in then and (look.cause in AT_WORK or not _has_moved(then[place], look))
    }


def _has_moved(then: ThreadLook, now: ThreadLook) -> bool:
    """True if a thread is elsewhere in the second of two looks; one that imports may be long at one line."""
    return blamed(then.stack) != blamed(now.stack) or (is_import(now.stack) and then.stack != now.stack)


def _loop_of(answer: Answer | str) -> ThreadLook | None:
    return next((look for look in answer.looks if look.kind == LOOP), None) if not isinstance(answer, str) else None


def _place(look: ThreadLook) -> str:
    return waits.place_of_wait(look.stack) if look.cause == waits.CLUSTER else ""


def _long(one: _Running, look: ThreadLook, still: float, work: float) -> bool:
    """True if a task that does not move has run for so long that it stands still."""
    seconds, is_still = max(one.seconds, look.ns / 1e9), still > UNKNOWN_HEARTBEATS * float(heartbeat_interval(1))
    if look.cause in AT_WORK or (_place(look) in FOR_OTHERS and not is_still):
        return bool(one.usual) and seconds > TIMES_COMPUTING * one.usual and seconds > MOST_OF_WORK * work
    if one.usual:
        return seconds > TIMES * one.usual
    return is_still


def _grouped(kind: str, found: Iterable[tuple[_Running, ThreadLook]], detail: str = "") -> Iterator[_Seen]:
    """Stalls of tasks of one prefix at one line."""
    groups: defaultdict[tuple[str, str, Frame], list[tuple[_Running, ThreadLook]]] = defaultdict(list)
    for one, look in found:
        groups[look.prefix, look.cause, blamed(look.stack)].append((one, look))
    for (prefix, cause, line), of_group in groups.items():
        running = tuple(one for one, _ in of_group)
        seconds = max(max(one.seconds, look.ns / 1e9) for one, look in of_group)
        workers = _names(one.ws for one in running)
        usual = max(one.usual for one in running)
        at = (line,) if line.file else ()
        yield StalledWork(kind, len(running), prefix, workers, seconds, usual, cause, at, detail), running
