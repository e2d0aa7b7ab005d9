"""Preflight: one test of workers, from asking who can be tested to the last pair."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dask_efficiency.accounts.checks import RefusedPayload, flag, text, whole
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.plugin import names
from dask_efficiency.plugin.guard import MAX_REASON
from dask_efficiency.plugin.plain import carried
from dask_efficiency.preflights.hardware.host import REPEATS
from dask_efficiency.preflights.judge.alone import ALIKE, PAIRS, compare_alone, suspects, unsettled, with_pair
from dask_efficiency.preflights.judge.links import MeasuredPair, MeasuredPairs
from dask_efficiency.preflights.judge.pairs import Pair, everybody_if_slow, first_round, in_doubt, next_round, startable
from dask_efficiency.preflights.judge.readings import Component, Reading, better, read_measurements
from dask_efficiency.preflights.scheduler.plan import STOPPED, Ask, Candidate, Plan
from dask_efficiency.straggler.peers import MIN_PEERS

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

#: Seconds until a silent worker is hung: an idle one answers in milliseconds, and five heartbeats of a small cluster
#: have passed.
READY_SECONDS = 5.0

#: Seconds until one that is asked again is hung for sure.
LATE_SECONDS = 8.0
#: Seconds for a worker to measure itself alone; on a machine that is not slow it takes 1, and with all repetitions 3.
ALONE_SECONDS = 20.0
#: Seconds for a pair; it takes less than one where no link is slower than 1 MB/s.
PAIR_SECONDS = 5.0
#: Seconds for an all-reduce or a training step of a pair; importing torch takes two to five of them.
GROUP_SECONDS = 20.0
#: Seconds that an answer may be late.
GRACE_SECONDS = 2.0
#: Repetitions of the measurement of a slow pair, and of a worker that joins: one slow second passes.
CONFIRMATIONS = 2
#: Good workers measured in turns with one that seems slow: a single one may be unusually fast.
GOOD_WORKERS = 2
#: Most turns of these: a few more than needed, as a component may fail in one.
MAX_ATTEMPTS = PAIRS + 2
#: Share of a test's time that is kept for pairs; a guess.
SHARE_OF_PAIRS = 0.3
#: Reason of a worker that left during the test.
LEFT = "it left during the test"
#: Reason of a worker whose figures tasks would spoil.
BUSY = "it began to run tasks"

#: Largest measurement that a worker may report: bytes a second, and seconds.
MAX_MEASURED = 1e300

Turn = TypeVar("Turn", bound=Hashable)


@dataclass(slots=True)
class Preflight:
    """One test of some workers."""

    plan: Plan
    workers: list[Candidate]
    ask: Ask
    #: The scheduler's workers by address, as they come and go.
    present: Mapping[str, WorkerState]
    random: Random = field(default_factory=Random)
    links: dict[str, list[MeasuredPair]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    #: Present step, and how many of its measurements are done.
    doing: str = "asking who can be tested"
    done: int = 0
    of: int = 0
    _until: float = math.inf
    #: The workers by address.
    _by_address: dict[str, Candidate] = field(init=False)

    def __post_init__(self) -> None:
        self._by_address = {candidate.subject.address: candidate for candidate in self.workers}

    async def run(self) -> None:
        """Run the test; results are in :attr:`workers` and :attr:`links`."""
        await self.prepare()
        asking = asyncio.gather(*map(self._ask_late, self._silent()))
        try:
            await self.measure_alone()
            await self._in_pairs()
            await self._confirm_alone()
            for _ in range(CONFIRMATIONS):
                await self._confirm_pairs()
            await asking
        finally:
            asking.cancel()
        silent = self._silent()
        if 2 * len(silent) > len(self.workers):  # something else is at fault
            for candidate in silent:
                candidate.note(broken="", not_tested=candidate.subject.broken)
            self.notes.append(
                f"{len(silent)} of {len(self.workers)} workers did not answer; with so many it may be the network, or "
                "the scheduler's own host, so none of them is named"
            )

    def stopped(self) -> None:
        """Note that it did not run to its end: workers without any measurement were not tested."""
        for candidate in self._testable():
            if not candidate.subject.readings:
                candidate.note(not_tested="the test was stopped before its turn")
        self.notes.append(f"{STOPPED} {self.doing}, {self.done} of {self.of} done: a complete test would show more")

    async def prepare(self) -> None:
        """Ask who can be tested; the time starts."""
        self._until = asyncio.get_running_loop().time() + self.plan.seconds
        await asyncio.gather(*map(self._prepare, self._testable()))

    async def measure_alone(self, only: list[Component] | None = None) -> None:
        """Measure each worker alone, or some components of each: once, and again what then seems slow."""
        testable = self._testable()
        sizes = Counter(candidate.subject.group for candidate in testable)
        # Too few to compare get all repetitions at once.
        looks = {
            candidate.subject.address: 1 if sizes[candidate.subject.group] >= MIN_PEERS else REPEATS
            for candidate in testable
        }
        components = {
            candidate.subject.address: only or self.plan.components(gpu=candidate.gpu) for candidate in testable
        }
        await self._measure_each("measuring each worker alone", components, looks)
        slow = suspects(compare_alone(candidate.subject for candidate in self._testable()))
        await self._measure_each("measuring workers that seem slow", slow, dict.fromkeys(slow, REPEATS - 1))

    async def _measure_each(
        self, doing: str, components: Mapping[str, Iterable[Component]], repeats: Mapping[str, int]
    ) -> None:
        async def measure(address: str) -> None:
            await self._measure(self._by_address[address], [*components[address]], repeats[address])

        await self._in_turns(doing, components, lambda address: [self._by_address[address].machine], measure)

    def _most(self) -> float:
        """Seconds that a worker has to measure itself."""
        return self.plan.seconds if self.plan.workload or self.plan.soak else ALONE_SECONDS

    def _left(self) -> float:
        return self._until - asyncio.get_running_loop().time()

    def _testable(self) -> list[Candidate]:
        return [candidate for candidate in self.workers if candidate.can_be_tested]

    def _silent(self) -> list[Candidate]:
        return [candidate for candidate in self.workers if candidate.subject.broken and not candidate.subject.paused]

    # -- who can be tested -------------------------------------------------------------------

    async def _prepare(self, candidate: Candidate) -> None:
        answer = await self._asked(
            candidate, {"step": names.READY}, min(READY_SECONDS, self.plan.seconds / 4), grace=0.0
        )
        if answer is None:
            return
        try:
            candidate.machine, candidate.gpu = (
                text("machine", answer.get("machine", "")),
                flag("gpu", answer.get("gpu", False)),
            )
            candidate.port = whole("port", answer.get("port", 0))
        except RefusedPayload as refusal:
            candidate.note(not_tested=f"its answer was refused: {refusal}"[:MAX_REASON])
            return
        if answer.get("closing"):
            candidate.note(not_tested="it is closing")
        elif answer.get("paused"):
            candidate.note(broken="it is paused: its memory is nearly full", paused=True)

    async def _ask_late(self, candidate: Candidate) -> None:
        """Ask a silent worker once more while the others are measured: one that was only late is not named."""
        step = {"step": names.READY, "test": self.plan.test}
        try:
            await self.ask(candidate.subject.address, step, min(LATE_SECONDS, self._left()))
        except OSError:
            return
        candidate.note(broken="", not_tested=f"{candidate.subject.broken}, and did later")

    async def _asked(
        self, candidate: Candidate, step: dict[str, Any], seconds: float, *, grace: float = GRACE_SECONDS
    ) -> Mapping[str, Any] | None:
        """Answer of a worker; None if there is none, for a reason noted of the worker."""
        message = {"test": self.plan.test, "seconds": seconds, "repetition": self.plan.repetition, **step}
        try:
            answer = await self.ask(candidate.subject.address, message, seconds + grace)
        except OSError as error:
            late = isinstance(error, TimeoutError)
            why = f"it did not answer in {seconds + grace:.3g} s" if late else f"it could not be reached: {error}"
            if candidate.subject.address in self.present:
                candidate.note(broken=why[:MAX_REASON])
            else:
                candidate.note(not_tested=LEFT)
            return None
        if isinstance(answer, Mapping):
            return answer
        candidate.note(not_tested="it is not metered: it has no dask_efficiency of this version")
        return None

    # -- alone -------------------------------------------------------------------------------

    async def _measure(self, candidate: Candidate, components: list[Component], repeats: int) -> None:
        """Measure components, and keep the best of the old and new readings."""
        before = candidate.subject.readings
        seconds = min(self._most(), self._left() - (0 if before else SHARE_OF_PAIRS * self.plan.seconds))
        if seconds < 1:
            if not before:
                candidate.note(not_tested=f"the {self.plan.seconds:.3g} s were over before its turn")
            return
        measured = await self._measured(candidate, components, seconds, repeats)
        if measured is not None:
            best = {name: better(name, before.get(name), reading) for name, reading in measured[0].items()}
            candidate.note(readings={**before, **best}, missing={**candidate.subject.missing, **measured[1]})

    async def _measured(
        self, candidate: Candidate, components: list[Component], seconds: float, repeats: int
    ) -> tuple[dict[Component, Reading], dict[Component, str]] | None:
        """New readings and reasons of missing ones; None without an answer, for a reason noted of the worker."""
        step = {
            "step": names.MEASURE,
            "components": list(map(str, components)),
            "force": self.plan.force,
            "workload": self.plan.workload,
            "repeats": repeats,
        }
        if Component.WORKLOAD in components:
            step["payload"] = carried(np.frombuffer(self.plan.payload, np.uint8))
        answer = await self._asked(candidate, step, seconds)
        if answer is None:
            return None
        if answer.get("busy"):
            candidate.note(not_tested=BUSY)
        elif "failed" in answer:
            candidate.note(not_tested=fitting(answer["failed"], MAX_REASON))
        else:
            try:
                return read_measurements(answer.get("measured"))
            except RefusedPayload as refusal:
                candidate.note(not_tested=f"its answer was refused: {refusal}"[:MAX_REASON])
        return None

    # -- once more ---------------------------------------------------------------------------

    async def _confirm_alone(self) -> None:
        """Measure workers that seem slow in turns with good ones, until it is known who is slow."""
        compared = compare_alone(candidate.subject for candidate in self._testable())
        slow = suspects(compared)
        fastest = {
            address: min((comparison.ratio for comparison in comparisons.values()), default=1.0)
            for address, comparisons in compared.items()
        }
        good = {address: self._good_for(self._by_address[address], slow, fastest) for address in slow}

        def machines(address: str) -> list[str]:
            return [candidate.machine for candidate in (self._by_address[address], *good[address])]

        async def confirm(address: str) -> None:
            await self._in_turns_with(self._by_address[address], good[address], slow[address])

        addresses = [address for address in slow if good[address]]
        await self._in_turns("measuring slow workers again", addresses, machines, confirm)

    def _good_for(self, candidate: Candidate, slow: Iterable[str], fastest: Mapping[str, float]) -> list[Candidate]:
        """Comparable workers that do not seem slow, best on its machine, and unusually fast ones last."""
        good = {
            other.subject.address: other
            for other in self._testable()
            if other.subject.group == candidate.subject.group
            and other.subject.readings
            and other.subject.address not in slow
        }

        def unusual(address: str) -> tuple[bool, bool, float]:
            is_fast = fastest.get(address, 1.0) < 1 / ALIKE
            return good[address].machine != candidate.machine, is_fast, self.random.random()

        return [good[address] for address in sorted(good, key=unusual)[:GOOD_WORKERS]]

    async def _in_turns_with(
        self, candidate: Candidate, good: Sequence[Candidate], suspected: Mapping[Component, float]
    ) -> None:
        for number in range(MAX_ATTEMPTS):
            seconds = min(self._most(), self._left())
            other, wanted = good[number % len(good)], unsettled(candidate.subject, suspected)
            if not wanted or seconds < 1 or not (candidate.can_be_tested and other.can_be_tested):
                return
            # They alternate in going first, so that a machine's changes of speed cancel.
            pair = (candidate, other) if number % 2 == 0 else (other, candidate)
            measured = {tested.subject.address: await self._measured(tested, wanted, seconds, 1) for tested in pair}
            own, others = measured[candidate.subject.address], measured[other.subject.address]
            if own is None or others is None:
                return
            candidate.subject = with_pair(candidate.subject, own[0], others[0])

    async def _confirm_pairs(self) -> None:
        """Measure pairs again that make a worker or a path slow."""
        compared = compare_alone(candidate.subject for candidate in self._testable())
        # Workers that are slow alone are named for that.
        slow = {
            address
            for address, comparisons in compared.items()
            if any(comparison.is_slow for comparison in comparisons.values())
        }
        pairs = {
            Pair(*workers): name
            for name, links in self.links.items()
            for workers in MeasuredPairs(links).to_confirm()
            if workers[0] not in slow
        }
        await self.measure_pairs("measuring slow pairs again", pairs, REPEATS)

    # -- in pairs ----------------------------------------------------------------------------

    async def _in_pairs(self) -> None:
        """Measure everybody in a pair once, those in doubt with some others, and then, if they seem slow, everybody."""
        groups: dict[str, list[Candidate]] = {}
        for candidate in self._testable():
            groups.setdefault(candidate.subject.group, []).append(candidate)
        await self._rounds({name: group for name, group in groups.items() if len(group) > 1}, first_look=True)
        for choose in (in_doubt, everybody_if_slow):
            again = {}
            for name, group in groups.items():
                links = MeasuredPairs(self.links.get(name, ()), final=False)
                again[name] = [self._by_address[worker] for worker in choose(_hosts(group), links, self.random)]
            await self._rounds({name: group for name, group in again.items() if group}, first_look=False)

    async def _rounds(self, groups: dict[str, list[Candidate]], *, first_look: bool) -> None:
        number = 0
        while groups and self._left() > 1:
            pairs: dict[Pair, str] = {}
            for name, group in list(groups.items()):
                hosts, links = _hosts(group), MeasuredPairs(self.links.get(name, ()), final=False)
                if number == 0:
                    chosen = first_round(hosts, self.random)
                elif len(group) < MIN_PEERS:
                    chosen = []
                else:
                    chosen = next_round(number, hosts, links, self.random, first_look=first_look)
                pairs |= dict.fromkeys(chosen, name)
                if not chosen:
                    del groups[name]
            number += 1
            doing = f"measuring {'' if first_look else 'slow '}pairs, round {number}"
            await self.measure_pairs(doing, pairs, 1 if first_look else REPEATS)
        if groups:
            self.notes.append(f"the {self.plan.seconds:.3g} s were over before all pairs were measured")

    async def measure_pairs(self, doing: str, pairs: Mapping[Pair, str], repeats: int) -> None:
        """Measure pairs, each of a group."""

        async def measure(pair: Pair) -> None:
            seconds = min(PAIR_SECONDS, self._left())
            if seconds < 1 or not all(self._by_address[worker].can_be_tested for worker in pair):
                return
            measured = await self._measure_pair(pair, seconds, repeats)
            if measured is not None:
                self.links.setdefault(pairs[pair], []).append(measured)

        await self._in_turns(doing, pairs, lambda pair: [self._by_address[worker].machine for worker in pair], measure)

    async def _measure_pair(self, pair: Pair, seconds: float, repeats: int) -> MeasuredPair | None:
        times = {"seconds": seconds, "repetition": self.plan.repetition, "repeats": repeats}
        step = {"step": names.PAIR, "partner": pair.second, "test": self.plan.test, **times}
        try:
            answer = await self.ask(pair.first, step, seconds + GRACE_SECONDS)
        except OSError:
            answer = None
        both = [self._by_address[worker] for worker in pair]
        for candidate in both:
            ws = self.present.get(candidate.subject.address)
            if ws is None:
                candidate.note(not_tested=LEFT)
            elif ws.processing and not self.plan.force:
                candidate.note(not_tested=BUSY)
        if not all(candidate.can_be_tested for candidate in both):
            return None
        by_component = {}
        for component in (Component.SEND, Component.RECEIVE, Component.LATENCY):
            value = answer.get(component) if isinstance(answer, Mapping) else None
            if not isinstance(value, int | float) or not 0 < value <= MAX_MEASURED:
                return MeasuredPair(pair.first, pair.second, {}, repeats=repeats)
            by_component[component] = float(value)
        backends = {Component.COLLECTIVE: self.plan.collective, Component.TRAINING: self.plan.training}
        for component, backend in backends.items():
            if backend:
                by_component |= await self._in_group(component, backend, both)
        return MeasuredPair(pair.first, pair.second, by_component, repeats)

    async def _in_group(self, component: Component, backend: str, both: Sequence[Candidate]) -> dict[Component, float]:
        """Seconds of work of two workers in a process group of torch, the slower one's; empty if not measured."""
        seconds = min(GROUP_SECONDS, self._left())
        if seconds < 1:
            return {}
        address = f"{both[0].subject.host}:{both[0].port}"
        step = {"step": names.MEASURE, "components": [str(component)], "force": self.plan.force}
        group = {"backend": backend, "address": address, "timeout": seconds}
        asked = (
            self._asked(candidate, {**step, "group": {**group, "rank": rank}}, seconds)
            for rank, candidate in enumerate(both)
        )
        answers = await asyncio.gather(*asked)
        took = []
        for candidate, answer in zip(both, answers, strict=True):
            measured = None if answer is None else answer.get("measured")
            content = measured.get(str(component)) if isinstance(measured, Mapping) else None
            content = content if isinstance(content, Mapping) else {}
            value = content.get("value")
            if isinstance(value, int | float) and 0 < value <= MAX_MEASURED:
                took.append(float(value))
            else:
                why = fitting(content.get("missing") or content.get("failed") or "it was not measured", MAX_REASON)
                candidate.note(missing={**candidate.subject.missing, component: why})
        return {component: max(took)} if len(took) == 2 else {}

    # -- turns -------------------------------------------------------------------------------

    async def _in_turns(
        self,
        doing: str,
        turns: Iterable[Turn],
        machines: Callable[[Turn], list[str]],
        measure: Callable[[Turn], Coroutine[Any, Any, None]],
    ) -> None:
        """Measure everything, one thing at a time on each machine."""
        waiting = dict.fromkeys(turns)
        self.doing, self.done, self.of = doing, 0, len(waiting)
        running: dict[asyncio.Task[None], Turn] = {}
        try:
            while waiting or running:
                busy = [place for turn in running.values() for place in machines(turn)]
                for turn in startable(waiting, busy, machines):
                    del waiting[turn]
                    running[asyncio.ensure_future(measure(turn))] = turn
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del running[task]
                    task.result()
                    self.done += 1
        finally:
            for task in running:
                task.cancel()


def _hosts(group: Iterable[Candidate]) -> dict[str, str]:
    return {candidate.subject.address: candidate.subject.host for candidate in group if candidate.can_be_tested}
