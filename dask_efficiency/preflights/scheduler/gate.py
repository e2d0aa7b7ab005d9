"""Gate: measures each worker that joins, alone and in pairs, and flags it if it is slow compared with others."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.plugin.names import STRAGGLERS_TOPIC
from dask_efficiency.preflights.hardware.host import REPEATS
from dask_efficiency.preflights.judge.alone import compare_alone, suspects
from dask_efficiency.preflights.judge.links import MeasuredPair, MeasuredPairs
from dask_efficiency.preflights.judge.pairs import MAX_ROUNDS, Pair, next_round
from dask_efficiency.preflights.judge.readings import Component, Subject
from dask_efficiency.preflights.judge.verdict import judge
from dask_efficiency.preflights.scheduler.plan import Ask, Candidate, Plan
from dask_efficiency.preflights.scheduler.preflight import CONFIRMATIONS, Preflight
from dask_efficiency.show.log import logger
from dask_efficiency.straggler.wording import as_finding

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

#: A worker that joins gets its half of the plugin a moment later: seconds between two looks, and until giving up.
LOOK_SECONDS = 0.25
METERED_SECONDS = 30.0
#: Workers whose measurements are kept for comparison, including those that left.
MAX_KNOWN = 1_000


@dataclass(slots=True, eq=False)
class Gate:
    """Measures workers that join."""

    scheduler: Scheduler
    ask: Ask
    #: Waits until no client's test goes on; and takes each finding, with the addresses of its workers.
    free: Callable[[], Awaitable[None]]
    report: Callable[[SlowWorker, set[str]], None]
    #: Measurements by address, oldest first.
    _known: dict[str, Subject] = field(default_factory=dict)
    _links: list[MeasuredPair] = field(default_factory=list)
    _flagged: set[str] = field(default_factory=set)
    _machines: dict[str, asyncio.Lock] = field(default_factory=dict)
    _open: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _pairing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _random: Random = field(default_factory=Random)

    def worker_joined(self, address: str) -> None:
        """Measure a worker as soon as it is metered."""
        if address not in self._known and address not in self._open:
            task = self._open[address] = asyncio.ensure_future(self._test(address))
            task.add_done_callback(lambda _: self._open.pop(address, None))

    def stop(self) -> None:
        """Stop measuring."""
        for task in list(self._open.values()):
            task.cancel()

    async def _test(self, address: str) -> None:
        try:
            await self._measure_when_metered(address)
            if address in self._known:
                await self._in_pairs(self._known[address].group)
                await self._judge(self._known[address].group)
        except Exception:
            logger.exception("dask_efficiency could not test %s before it gets tasks", address)

    async def _measure_when_metered(self, address: str) -> None:
        until = time.monotonic() + METERED_SECONDS
        while (ws := self.scheduler.workers.get(address)) is not None:
            subject = await self._measured(ws, None)
            if subject.not_tested and subject.not_tested.startswith("it is not metered") and time.monotonic() < until:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            if subject.not_tested:
                logger.info("dask_efficiency did not test %s as it joined: %s", subject.name, subject.not_tested)
                event = {"action": "preflight-not-tested", "worker": subject.name, "reason": subject.not_tested}
                self.scheduler.log_event(STRAGGLERS_TOPIC, event)
            else:
                self._known[address] = subject
                while len(self._known) > MAX_KNOWN:
                    self._forget(next(iter(self._known)))
            return

    def _forget(self, address: str) -> None:
        del self._known[address]
        self._links = [link for link in self._links if address not in (link.first, link.second)]

    async def _measured(self, ws: WorkerState, only: list[Component] | None) -> Subject:
        """Worker with new measurements, and the best of those before."""
        await self.free()
        before = self._known.get(ws.address)
        tested = Candidate(before) if only is not None and before is not None else Candidate.of(ws)
        if ws.processing:
            return replace(tested.subject, not_tested="it is busy")
        test = await self._prepared([tested])
        async with self._machines.setdefault(tested.machine, asyncio.Lock()):
            await test.measure_alone(only)
        # A worker that has just started may be slow to answer, and is not named for that here.
        subject = tested.subject
        return replace(subject, broken="", paused=False, not_tested=subject.broken) if subject.broken else subject

    async def _prepared(self, workers: list[Candidate]) -> Preflight:
        test = Preflight(Plan(uuid.uuid4().hex), workers, self.ask, self.scheduler.workers)
        await test.prepare()
        return test

    async def _in_pairs(self, group: str) -> None:
        """Measure pairs of workers without tasks, until it is known of each whether it is slow."""
        async with self._pairing:
            for _ in range(MAX_ROUNDS):
                links = MeasuredPairs(self._pairs_of(group), final=False)
                hosts = {subject.address: subject.host for subject in self._of(group) if self._is_idle(subject.address)}
                if not (pairs := next_round(MAX_ROUNDS - 1, hosts, links, self._random)):
                    break
                await self._measure_pairs(pairs, group)
            for _ in range(CONFIRMATIONS):
                links = MeasuredPairs(self._pairs_of(group))
                new = links.slow_workers().keys() - self._flagged
                await self._measure_pairs([Pair(*two) for two in links.to_confirm() if two[0] in new], group)

    async def _measure_pairs(self, pairs: list[Pair], group: str) -> None:
        await self.free()
        pairs = [pair for pair in pairs if all(address in self._known and self._is_idle(address) for address in pair)]
        workers = [Candidate(self._known[address]) for pair in pairs for address in pair]
        test = await self._prepared(workers)
        async with AsyncExitStack() as turn:
            for machine in sorted({worker.machine for worker in workers}):
                await turn.enter_async_context(self._machines.setdefault(machine, asyncio.Lock()))
            await test.measure_pairs("measuring pairs", dict.fromkeys(pairs, group), REPEATS)
        links = [*self._links, *test.links.get(group, [])]
        self._links = [link for link in links if {link.first, link.second} <= self._known.keys()]

    def _is_idle(self, address: str) -> bool:
        ws = self.scheduler.workers.get(address)
        return ws is not None and not ws.processing

    async def _judge(self, group: str) -> None:
        """Compare the workers of a group, also those that could not be compared before."""
        for _ in range(CONFIRMATIONS):
            slow = suspects(compare_alone(self._of(group)))
            for other in slow.keys() - self._flagged:
                ws = self.scheduler.workers.get(other)
                again = await self._measured(ws, [*slow[other]]) if ws is not None else None
                if other not in self._known:
                    continue  # forgotten meanwhile
                if again is None or again.not_tested:
                    # With tasks by now, or gone, it cannot be confirmed, and is not named for one measurement.
                    again = replace(self._known[other], readings={}, missing={}, broken="", paused=False)
                self._known[other] = again
        links = self._pairs_of(group)
        for finding in judge(self._of(group), [MeasuredPairs(links)] if links else [], at=time.time()):
            self._flag(finding, group)

    def _of(self, group: str) -> list[Subject]:
        return [subject for subject in self._known.values() if subject.group == group]

    def _pairs_of(self, group: str) -> list[MeasuredPair]:
        return [link for link in self._links if self._known[link.first].group == group]

    def _flag(self, finding: SlowWorker, group: str) -> None:
        named = {
            subject.address
            for subject in self._of(group)
            if (subject.name == finding.worker if finding.worker else subject.host == finding.host)
        }
        if named - self._flagged:
            self._flagged |= named
            logger.warning("Preflight: %s", ". ".join(as_finding(finding).lines))
            self.scheduler.log_event(STRAGGLERS_TOPIC, {"action": "preflight", **finding.to_dict()})
            self.report(finding, named & self.scheduler.workers.keys())
