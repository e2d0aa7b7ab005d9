"""OpenWindows: opens and closes windows for clients; each ends as a report."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from dask_efficiency.accounts.checks import short
from dask_efficiency.accounts.cluster.memory_timeline import MemoryRecorder
from dask_efficiency.accounts.cluster.timeline import TimelineRecorder
from dask_efficiency.accounts.cluster.windows import ClusterWindow
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.stalls import encode_stalls
from dask_efficiency.accounts.worker.reservations import MAX_WINDOWS
from dask_efficiency.plugin.guard import decoration
from dask_efficiency.plugin.names import CLOSE, OPEN
from dask_efficiency.plugin.processors import own_processors
from dask_efficiency.plugin.scheduler import replies
from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts
from dask_efficiency.plugin.scheduler.endings import unfinished
from dask_efficiency.plugin.scheduler.registration import OpenWindow, Registration
from dask_efficiency.plugin.scheduler.spans import is_own, lines_before
from dask_efficiency.plugin.scheduler.workers import WorkerHalves
from dask_efficiency.show.figures import format_count
from dask_efficiency.straggler.breakdowns import line_of
from dask_efficiency.straggler.causes import IN_CODE

#: Seconds for which a straggler samples the lines on which its tasks wait, when a client asks.
LOOKING_SECONDS = 1.0
#: Prefix of the ids of clients in tasks; their graphs belong to whoever sent the tasks.
IN_TASKS = "Client-worker-"
#: Ended windows whose reason is kept.
MAX_ENDED = 256
#: Seconds for which the end of a window waits until the graphs are there that its client has sent: they travel on
#: another connection, and are taken in at the scheduler's leisure. A guess.
GRAPHS_SECONDS = 2.0
#: Windows for which workers are asked at a time to open or drop them, and replies that are made at a time: of a
#: thousand at once, none would be quick, and the scheduler would answer nobody meanwhile. A worker that does not answer
#: delays as many.
AT_ONCE = 4


class OpenWindows:
    """Opens and closes windows of a meter on all workers at once."""

    def __init__(self, meter: Registration, accounts: ClusterAccounts, workers: WorkerHalves) -> None:
        self._meter, self._accounts, self._workers = meter, accounts, workers
        self._open = meter.windows
        #: Clients of the windows that are not there yet.
        self._opening: dict[str, str] = {}
        self._closing: set[str] = set()
        #: By window: reason why it is not open any more.
        self._ended: dict[str, str] = {}
        self._begun, self._dropped, self._replies = (asyncio.Semaphore(AT_ONCE) for _ in range(3))

    async def open(self, window_id: str, client: str, span: str, wanted: Mapping[str, Any]) -> None:
        """Open a window for a client, whose work is tagged with a span; ``wanted`` is for the parts."""
        if window_id in self._open or window_id in self._opening:
            raise ValueError(f"window is {short(window_id)}; expected one that is not open yet")
        self._opening[window_id] = client
        try:
            async with self._begun:
                await self._begin(window_id, client, span, wanted)
        finally:
            self._opening.pop(window_id, None)

    async def _begin(self, window_id: str, client: str, span: str, wanted: Mapping[str, Any]) -> None:
        accounts = self._accounts
        try:
            await accounts.poll_all()
            await self._meter.parts.each_in_turn("window_opens", window_id, wanted)
            if window_id in self._ended or self._workers.removed:
                why = self._ended.get(window_id, "the plugin was taken away")
                raise RuntimeError(f"the window was not opened: {why}")
        except BaseException:
            self.forget(window_id, "it could not be opened")
            raise
        del self._opening[window_id]
        while len(self._open) >= MAX_WINDOWS:
            self.forget(next(iter(self._open)), f"it was the oldest, and {MAX_WINDOWS} others were opened after it")
        at = time.monotonic_ns()
        accounts.idle.catch_up(at=at)
        self._open[window_id] = opened = self._window_at(at, client, span, only=bool(wanted.get("only")))
        accounts.cluster.idle.shares[window_id] = shares = opened.window.shares
        accounts.idle.sample(at=at)  # now also for spans

        def take(address: str, reply: Any, at: int) -> None:
            accounts.take_answer(address, reply, at)
            opened.window.opened_on(address, late=not isinstance(reply, dict))

        try:
            self._workers.update()  # those that join from now on open it, too
            await self._workers.take(OPEN, window_id, take)
        except BaseException:
            self.forget(window_id, "it could not be opened")
            raise
        # Separates what the workers do from now on from the time before.
        accounts.follow()
        shares.report(accounts.cluster.part("activity"), accounts.cluster.part("cause_activity"))

    def _window_at(self, at: int, client: str, span: str, *, only: bool) -> OpenWindow:
        """Window that begins now, with the state of the cluster."""
        accounts, work, scheduler = self._accounts, self._accounts.work, self._meter.scheduler
        if not work.spans.followed:
            work.spans.follow(scheduler.task_groups.values())
        spans = {span}
        window = ClusterWindow(
            accounts.cluster,
            at=at,
            graphs=work.graphs,
            running=work.running,
            scheduler=own_processors(),
            is_own=partial(is_own, scheduler, spans) if only else None,
        )
        state = scheduler.clients.get(client)
        wanted = set() if state is None else {ts.group.span_id for ts in state.wants_what}
        foreign = {path[-1] for path in work.spans.outstanding()} - wanted
        idle, loop = accounts.cluster.idle, accounts.loop.totals_if_known()
        return OpenWindow(
            *(
                window,
                TimelineRecorder(at=at),
                MemoryRecorder(at=at),
                client,
                spans,
                foreign,
                only,
                work.window_opens(),
            ),
            *(dict(idle.parallelism), dict(idle.alone), loop),
        )

    async def close(self, window_id: str, graphs: int = 0) -> dict[str, Any]:
        """Close a window, whose client has sent so many graphs in it, and return the reply to the client.

        Raises RuntimeError if no such window is open.
        """
        opened = self._open.get(window_id)
        if opened is None:
            why = self._ended.get(window_id, "the scheduler, or the plugin on it, was started after it opened")
            raise RuntimeError(f"no window {short(window_id)} is open: {why}")
        if window_id in self._closing:
            raise RuntimeError(f"the window {short(window_id)} is being closed already")
        self._closing.add(window_id)
        try:
            notes = await self._take_in(opened, graphs)
            return await self._close(window_id, opened, notes)
        finally:
            self._closing.discard(window_id)

    async def _take_in(self, opened: OpenWindow, graphs: int) -> list[str]:
        """Wait until the client's graphs are taken in; returns a note if some are not."""
        if not self._accounts.work.counts_graphs:
            return []
        with suppress(TimeoutError):
            async with asyncio.timeout(GRAPHS_SECONDS):
                while opened.graphs < graphs:
                    opened.arrived.clear()
                    await opened.arrived.wait()
        missing = graphs - opened.graphs
        return [f"{format_count(missing, 'graph')} of the block had not arrived when it ended"] if missing > 0 else []

    async def _close(self, window_id: str, opened: OpenWindow, notes: list[str]) -> dict[str, Any]:
        accounts, cluster, parts = self._accounts, self._accounts.cluster, self._meter.parts
        at = time.monotonic_ns()  # waiting for a worker that does not answer is no part of the window
        opened.timeline.stop(at=at)
        accounts.idle.catch_up(at=at)
        cluster.idle.shares.pop(window_id, None)
        opened.loop_at_stop = accounts.loop.totals_if_known()
        self._note_unfinished(opened, notes)
        closing = opened.window.stop(at=at)

        def take(address: str, reply: Any, at: int) -> None:
            closing.take(address, accounts.take_answer(address, reply, at), at=at)

        await self._workers.take(CLOSE, window_id, take)
        await accounts.poll_all()
        await accounts.settle_departed()
        async with self._replies:
            accounts.work.catch_up()
            reply = replies.of_window(accounts, opened, closing.close(own_processors()), at)
            added: dict[str, Any] = {}
            await parts.each_in_turn("window_closes", window_id, opened.window.opened, added, reply.known["notes"])
            reply.known["notes"] += [*parts.failures(), *dict.fromkeys(notes)]
            self.forget(window_id, "it was closed already", closed=True)
            return {**await replies.packed(reply), **added}

    def _note_unfinished(self, opened: OpenWindow, notes: list[str]) -> None:
        scheduler = self._meter.scheduler
        with decoration("list of outstanding tasks", notes):
            opened.unfinished = unfinished(scheduler, opened.tasks)
            opened.stalls = encode_stalls(self._accounts.stalls.lately)

    async def with_lines(self, findings: tuple[SlowWorker, ...]) -> tuple[SlowWorker, ...]:
        """Add to findings the lines on which tasks wait now: their workers sample for a moment."""
        accounts, causes = self._accounts, {one.worker: one.cause for one in findings if one.cause in IN_CODE}
        present = accounts.cluster.present.items()
        asked = {address: presence.name for address, presence in present if presence.name in causes}
        if not asked:
            return findings
        lines, window_id = {}, uuid.uuid4().hex
        for action in (OPEN, CLOSE):
            for address, (reply, at) in (await self._workers.ask(action, window_id, addresses=asked)).items():
                window, name = accounts.take_answer(address, reply, at), asked[address]
                if not isinstance(window, str):
                    lines[name] = line_of(causes[name], window.details.profile.items())
            if action == OPEN:
                await asyncio.sleep(LOOKING_SECONDS)
        return tuple(replace(one, line=lines.get(one.worker, "")) for one in findings)

    def forget(self, window_id: str, why: str, *, closed: bool = False) -> None:
        """Close a window without a report, on the workers unless they ``closed`` it; later requests get the reason."""
        self._ended.setdefault(window_id, why)
        while len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        was_open = self._open.pop(window_id, None) is not None
        self._accounts.cluster.idle.shares.pop(window_id, None)
        if not self._open:
            self._accounts.work.spans.stop()
        self._meter.parts.each("window_forgotten", window_id)
        if not self._workers.removed:
            self._workers.update()
            background = self._meter.scheduler._ongoing_background_tasks
            if was_open and not closed and not background.closed:
                background.call_soon(self._drop, window_id)

    async def _drop(self, window_id: str) -> None:
        """Have the workers close a window of which nobody gets a report."""
        async with self._dropped:
            if not self._workers.removed:
                await self._workers.take(CLOSE, window_id, self._accounts.take_answer)

    def client_left(self, client: str) -> None:
        """Close the windows of a client that is gone."""
        clients = self._opening | {window_id: opened.client for window_id, opened in self._open.items()}
        for window_id in [window_id for window_id, its in clients.items() if its == client]:
            self.forget(window_id, "its client lost its connection to the scheduler meanwhile, which ends its windows")

    def graph_taken_in(self, client: str, keys: Iterable[Any], wanted: Any) -> None:
        """Note the spans of a client and the tasks of its graph, for its open windows."""
        if not self._open:
            return
        tasks = self._meter.scheduler.tasks
        groups = Counter(tasks[key].group for key in keys if key in tasks)
        self._accounts.work.spans.taken_in(groups)
        spans = {group.span_id for group in groups if group.span_id}
        by_prefix: dict[str, set[str]] = {}
        for group in groups:
            if group.prefix is not None:
                by_prefix.setdefault(group.prefix.name, set()).add(group.span_id or "")
        for opened in self._open.values():
            if opened.client == client:
                opened.tasks.update(groups)
                opened.shared |= spans & opened.foreign
                opened.spans |= spans - opened.foreign
                before = lines_before(self._meter.scheduler, opened, by_prefix)
                opened.sent_before |= before
                opened.sent.add(wanted, by_prefix.keys() - before.keys())
            elif not client.startswith(IN_TASKS):
                opened.shared |= spans & opened.spans
                opened.foreign |= spans - opened.spans
