"""StackQuestions: asks all workers what their threads do; one whose event loop is blocked answers from a thread."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from distributed import Scheduler, Worker
from distributed.scheduler import WorkerState

from dask_efficiency.accounts.checks import RefusedPayload, counts, short, text
from dask_efficiency.accounts.intake import fitting, number
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.accounts.thread_looks import FREE, KINDS, LOOP, OTHER, ThreadLook, decode_looks, encode_looks
from dask_efficiency.plugin import names
from dask_efficiency.plugin.guard import MAX_REASON
from dask_efficiency.plugin.scheduler.registration import Registration
from dask_efficiency.plugin.scheduler.workers import ASKED_AT_ONCE, WorkerHalves
from dask_efficiency.plugin.stacks import Stacks, frames_of_others, has_gil

#: Seconds that workers have to answer; with native stacks, for which symbols of libraries are read.
ANSWER_SECONDS, NATIVE_SECONDS = 1.5, 25.0
#: Seconds for which a worker's thread that tells of a blocked event loop waits for a question.
ASIDE_SECONDS = 5.0
#: Threads in an answer: one row takes some 80 bytes.
MAX_LOOKS = 20_000
#: Workers named where a name is unknown.
_EXAMPLES = 3


@dataclass(slots=True, eq=False)
class _Question:
    """Question that waits for the thread of a blocked worker, which gets it as the answer to what it told last."""

    asked: Mapping[str, Any]
    answered: asyncio.Future[Answer]
    sent: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Threads of one worker, the source of their lines, and why no native frames are among them."""

    looks: list[ThreadLook]
    code: dict[Frame, str]
    not_native: str = ""
    #: Number of inputs that are being fetched, by address of their worker.
    fetching: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Answer:
        """Check and read a worker's answer; raises RefusedPayload."""
        looks, code = decode_looks(payload)
        return cls(
            looks,
            code,
            text("not_native", payload.get("not_native", "")),
            counts("fetching", payload.get("fetching", {})),
        )


@dataclass(slots=True, eq=False)
class _Asides:
    """Questions to the thread of one blocked worker."""

    questions: list[_Question] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    #: Connections of that thread that wait for one.
    waiting: int = 0


class StackQuestions:
    """Asks what all threads do, and takes what blocked workers tell by themselves."""

    def __init__(self, meter: Registration, workers: WorkerHalves) -> None:
        self._meter, self._workers = meter, workers
        self._asides: defaultdict[str, _Asides] = defaultdict(_Asides)

    @property
    def _scheduler(self) -> Scheduler:
        return self._meter.scheduler

    async def take_aside(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Take the threads of a worker whose event loop is blocked; returns the next question, soon or in a while."""
        address = asked["worker"]
        if address not in self._scheduler.workers:
            raise RefusedPayload(f"worker is {short(address)}; expected the address of a worker")
        answer, aside = Answer.of(asked["looks"]), self._asides[address]
        for question in aside.questions:
            if not asked["asked"]:  # a new connection, which knows nothing of what an earlier one was asked
                question.sent = False
            elif question.sent and question.asked == asked["asked"] and not question.answered.done():
                question.answered.set_result(answer)
        loop = asyncio.get_running_loop()
        until = loop.time() + ASIDE_SECONDS
        aside.waiting += 1
        try:
            while not (left := [one for one in aside.questions if not one.sent]) and loop.time() < until:
                aside.arrived.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(aside.arrived.wait(), until - loop.time())
        finally:
            aside.waiting -= 1
            self._forget(address)
        for question in left:
            question.sent = question.asked == left[0].asked
        return {"ask": dict(left[0].asked) if left else {}}

    def _forget(self, address: str) -> None:
        """Forget a worker that is not asked, and tells nothing."""
        asides = self._asides.get(address)
        if asides is not None and not asides.questions and not asides.waiting:
            del self._asides[address]

    async def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Threads of the workers that a client asks for, and of the scheduler, as plain data."""
        servers, native = self._chosen(asked["workers"] or ()), bool(asked["native"])
        prefix = asked["prefix"] or ""
        question = {"prefix": prefix, "native": native, "source": self._meter.options.source}
        seconds = NATIVE_SECONDS if native else ANSWER_SECONDS
        asking = []
        for address in servers:
            asking.append(asyncio.ensure_future(self._ask(address, question, seconds)))
            if not len(asking) % ASKED_AT_ONCE:
                await asyncio.sleep(0)
        answers = dict(zip(servers, await asyncio.gather(*asking), strict=True))
        with_own = not prefix and not asked["workers"]
        ident = threading.get_ident()
        usual = {one: self.usual(one) for one in {look.prefix for a in answers.values() for look in _looks(a)}}
        here = {worker.address for worker in list(Worker._instances)}  # on a thread, one may begin or go meanwhile
        return await asyncio.to_thread(_reply, servers, answers, ident if with_own else None, usual, here)

    async def ask_all(self, addresses: Iterable[str]) -> dict[str, Answer | str]:
        """Answers of these workers by address, or the reasons why there are none; without source."""
        question = {"prefix": "", "native": False, "source": False}
        there = [address for address in addresses if address in self._scheduler.workers]
        answers = await asyncio.gather(*(self._ask(address, question, ANSWER_SECONDS) for address in there))
        return dict(zip(there, answers, strict=True))

    def _chosen(self, wanted: list[str] | tuple[str, ...]) -> dict[str, WorkerState]:
        """Workers of these names or addresses, or all; raises ValueError for one that is not there."""
        there = dict(self._scheduler.workers)
        if not wanted:
            return there
        known: defaultdict[str, list[str]] = defaultdict(list)
        for address, ws in there.items():
            known[address].append(address)
            known[fitting(ws.name)].append(address)
        for name in wanted:
            if name not in known:
                some = ", ".join(repr(fitting(ws.name)) for ws in [*there.values()][:_EXAMPLES])
                raise ValueError(f"no worker is called {short(name)}; expected a name or address, such as {some}")
        return {address: there[address] for name in wanted for address in known[name]}

    async def _ask(self, address: str, question: Mapping[str, Any], seconds: float) -> Answer | str:
        """Answer of a worker, of its event loop or of the thread beside it; or the reason why there is none."""
        aside = _Question(question, asyncio.get_running_loop().create_future())
        asides = self._asides[address]
        asides.questions.append(aside)
        asides.arrived.set()
        direct = asyncio.ensure_future(self._workers.ask_one(address, {"action": names.STACKS, **question}, seconds))
        try:
            await asyncio.wait([direct, aside.answered], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if aside.answered.done():
                return aside.answered.result()
            if not direct.done():
                return f"no answer in {seconds:g} s"
            payload = direct.result()
            return "it has no plugin" if payload is None else Answer.of(payload)
        except TimeoutError:
            return f"no answer in {seconds:g} s"
        except (OSError, RefusedPayload) as error:
            return fitting(error, MAX_REASON)
        finally:
            direct.cancel()
            asides.questions.remove(aside)
            self._forget(address)

    def usual(self, prefix: str) -> float | None:
        """Mean seconds of a prefix's tasks that have ended; None without any."""
        known = self._scheduler.task_prefixes.get(prefix)
        if known is None or not (ended := known.state_counts["memory"]):
            return None
        return number(known.all_durations.get("compute", 0.0) / ended) or None


def _looks(answer: Answer | str) -> list[ThreadLook]:
    return [] if isinstance(answer, str) else answer.looks


def _reply(
    servers: Mapping[str, WorkerState],
    answers: Mapping[str, Answer | str],
    loop_ident: int | None,
    usual: Mapping[str, float | None],
    here: Collection[str],  # addresses of workers of this process
) -> dict[str, Any]:
    """Reply of what was answered; with the scheduler's own threads, if its loop's ident is given. On a thread."""
    silent: dict[str, str] = {}
    not_native: dict[str, str] = {}
    code: dict[Frame, str] = {}
    #: One look at each thread, as workers may share a process, where the others' tasks are unknown.
    found: dict[tuple[object, int, str], ThreadLook] = {}

    def add(process: object, look: ThreadLook) -> None:
        place = process, look.ident, look.key if not look.name else ""
        if place not in found or KINDS.index(look.kind) < KINDS.index(found[place].kind):
            found[place] = look

    for address, answer in answers.items():
        ws = servers[address]
        name = fitting(ws.name)
        if isinstance(answer, str):
            silent[name] = answer
            continue
        if answer.not_native:
            not_native[name] = answer.not_native
        code |= answer.code
        for look in answer.looks:
            add("here" if address in here else (ws.host, ws.pid), look._replace(worker=name))
    for look in () if loop_ident is None else _own_looks(loop_ident):
        add("here", look)
    looks = sorted(found.values(), key=lambda look: (KINDS.index(look.kind), -look.ns))
    return {
        **encode_looks(looks[:MAX_LOOKS], code),
        "more": len(looks[MAX_LOOKS:]),
        "usual": {prefix: seconds for prefix, seconds in usual.items() if seconds is not None},
        "silent": silent,
        "not_native": not_native,
        "workers": len(servers),
    }


def _own_looks(loop_ident: int) -> Iterator[ThreadLook]:
    """Looks at the threads of this process, but the caller's; their causes are not known."""
    stacks = Stacks()
    frames = frames_of_others() if has_gil() else {}
    for thread in threading.enumerate():
        ident = thread.ident or 0
        if ident == threading.get_ident():
            continue
        stack = stacks.whole(frames.pop(ident, None))
        is_free = bool(stack) and stack[-1].function == "_worker"
        kind = LOOP if ident == loop_ident else FREE if is_free else OTHER
        yield ThreadLook("", kind, fitting(thread.name), ident, "", "", 0, "", False, stack)
