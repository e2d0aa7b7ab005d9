"""ClusterMeter: the scheduler's side of a registration: starts and stops, receives Dask's hooks, answers clients."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, short, text
from dask_efficiency.accounts.cluster.time_left import encode_left
from dask_efficiency.plugin import names, plain
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.options import Options
from dask_efficiency.plugin.parts import Parts
from dask_efficiency.plugin.scheduler import replies
from dask_efficiency.plugin.scheduler.accounts import MAX_POLL_SECONDS, ClusterAccounts
from dask_efficiency.plugin.scheduler.open_windows import OpenWindows
from dask_efficiency.plugin.scheduler.questions import checked
from dask_efficiency.plugin.scheduler.registration import Registration
from dask_efficiency.plugin.scheduler.workers import WorkerHalves

#: Milliseconds between two polls for new heartbeats: no hook fires when one arrives.
POLL_MS = 500
#: Nanoseconds after a client's arrival in which nothing is begun: its connection fails if its first message comes
#: together with a second one, which a busy event loop makes likelier (docs/upstream/first_message.patch).
QUIET_NS = 2_000_000
#: Stands for a client whose id is too long, or no text; such a client has no windows.
ODD_CLIENT = "(odd client)"
#: Registrations and removals await the workers: one at a time on each scheduler.
_TURNS: WeakKeyDictionary[Scheduler, asyncio.Lock] = WeakKeyDictionary()


def turn(scheduler: Scheduler) -> asyncio.Lock:
    """Lock under which a scheduler's meter starts and stops."""
    return _TURNS.setdefault(scheduler, asyncio.Lock())


class ClusterMeter(Registration):
    """One registration on one scheduler, from the first plugin to the last, with the leases of a ``former`` one.

    Plugins that replace one another share it, so that no counter goes backwards. It holds what the others need of one
    another: options, windows, parts, the workers' halves and the accounts.
    """

    def __init__(self, scheduler: Scheduler, options: Options, *, former: ClusterMeter | None = None) -> None:
        self.scheduler, self.options = scheduler, options
        self.session = uuid.uuid4().hex
        self.plugin: SchedulerPlugin | None = None
        self.closed = False
        off = "dask_efficiency switched itself off on the scheduler"
        self.guard = Guard("the meter on the scheduler", off, self._failed)
        self.windows = {}
        self.workers = WorkerHalves(self)
        self.parts = Parts("scheduler", self)
        self.accounts = ClusterAccounts(self, self.workers)
        self._metered = self.accounts.work.hook(self.guard.fail)
        self._windows = OpenWindows(self, self.accounts, self.workers)
        self.parts.load_all()
        #: Kept for good (None), or by a number of reports of each client.
        self._leases: Counter[str | None] = Counter() if former is None else former._leases.copy()
        self._poller = PeriodicCallback(lambda: self.guard(self._poll), POLL_MS)
        self._quiet_until = 0

    async def start(self) -> None:
        """Send the workers their half, and listen."""
        self.scheduler.handlers[names.OP] = self.handle
        # Accounts of present workers begin when they are metered, not when they are asked.
        asked = time.monotonic_ns()
        await self.workers.send()
        self.accounts.reconcile(asked)
        self.guard(self._poll)
        self._poller.start()
        self.accounts.idle.start()
        self.accounts.loop.start()
        self.parts.each("start")
        await self.parts.each_in_turn("configured")

    async def reconfigure(self, options: Options) -> None:
        """Take other options; the accounts go on."""
        if options == self.options:
            return
        former, self.options = self.options, options
        if options.of_workers() != former.of_workers():
            await self.workers.send()
        await self.parts.each_in_turn("configured")

    async def stop(self) -> None:
        """Take everything away again, in turn; safe to call twice."""
        async with turn(self.scheduler):
            await self.take_away()

    async def _stop_if_unused(self) -> None:
        async with turn(self.scheduler):
            if not self._leases:
                await self.take_away()

    async def take_away(self, *, workers: bool = True) -> None:
        """Take everything away again; the caller holds the :func:`turn`."""
        if self.closed:
            return
        self.closed = True
        self.guard.close()
        self.workers.forget()
        self.parts.each("stop")
        self._stop_measuring()
        if self.scheduler.handlers.get(names.OP) == self.handle:
            del self.scheduler.handlers[names.OP]
        for name, plugin in list(self.scheduler.plugins.items()):
            if plugin is self.plugin:
                del self.scheduler.plugins[name]
        if workers:
            await self.workers.remove()

    def _stop_measuring(self) -> None:
        self._poller.stop()
        self.accounts.loop.stop()
        self.accounts.stalls.stop()
        self.accounts.idle.stop()
        self.accounts.work.close()

    def _failed(self) -> None:
        self._stop_measuring()
        self.parts.each("meter_failed")
        if self.plugin is not None:
            self.plugin.__dict__.pop("transition", None)

    def lease(self, client: str | None) -> None:
        """Keep the meter for good (None), or for one more report of a client."""
        self._leases[client] += 1

    def bind(self, plugin: SchedulerPlugin) -> None:
        """Have a plugin's hooks feed this meter."""
        self.plugin = plugin
        # Bound to the instance: the scheduler calls it for every transition of every task.
        hook = self._metered
        for part in self.parts:
            hook = part.hook(hook)
        plugin.transition = hook  # type: ignore[method-assign]

    def rebind(self) -> None:
        """Bind again, as a part has another hook than before."""
        if self.plugin is not None and "transition" in self.plugin.__dict__:
            self.bind(self.plugin)

    def worker_left(self, address: str, stimulus_id: str) -> None:
        """A worker was removed."""
        presence = self.accounts.cluster.present.get(address)
        self.accounts.worker_left(address, time.monotonic_ns(), stimulus_id)
        if presence is None or not presence.closing:  # one that closes in order may answer yet
            self.workers.vanished(address)

    def client_arrives(self) -> None:
        """Begin nothing until the client was sent its first message."""
        self._quiet_until = self.accounts.idle.quiet_until = time.monotonic_ns() + QUIET_NS

    def client_left(self, client: object) -> None:
        """Close the windows and release the leases of a lost client."""
        if not isinstance(client, str):  # it has none
            return
        self._windows.client_left(client)
        self.parts.each("client_left", client)
        if self._leases.pop(client, None):
            self.scheduler._ongoing_background_tasks.call_soon(self._stop_if_unused)

    def graph_taken_in(self, client: object, tasks: list[Any], keys: Any, stimulus_id: str) -> None:
        """A client's graph was taken in."""
        client = client if isinstance(client, str) and len(client) <= MAX_NAME_LENGTH else ODD_CLIENT
        self.accounts.work.asked(stimulus_id, tasks)
        self.parts.each("graph_taken_in", client, tasks, keys, stimulus_id)
        self._windows.graph_taken_in(client, tasks, keys)

    def event(self, topic: object, message: object) -> None:
        """A worker may have sent its final snapshot, or recorded batches."""
        self.parts.each("event", topic, message)
        self.accounts.events(topic, message)

    def _poll(self) -> None:
        if (quiet := self._quiet_until - time.monotonic_ns()) > 0:
            asyncio.get_running_loop().call_later(quiet / 1e9, self.guard, self._poll)
            return
        if self.plugin is not None and self.plugin not in self.scheduler.plugins.values():
            # Unregistered behind our back; the workers' half must go as well.
            self.scheduler._ongoing_background_tasks.call_soon(self.stop)
            return
        self.accounts.work.catch_up()
        self.accounts.loop.refresh()
        self.accounts.stalls.poll()
        self.accounts.time_left.poll()
        if self.closed:
            return
        rest = self.accounts.remember if self.accounts.poll(at_most=MAX_POLL_SECONDS) else self._poll
        asyncio.get_running_loop().call_soon(self.guard, rest)  # in a turn of the event loop of its own

    async def ask_snapshots(self) -> None:
        """Bring the accounts up to this instant."""
        await self.workers.take(names.SNAPSHOT, "", self.accounts.take_answer)
        await self.accounts.poll_all()
        await self.accounts.settle_departed()

    async def handle(self, action: object = None, **kwargs: Any) -> dict[str, Any]:
        """Answer a client; raises RuntimeError with the reason if the meter failed, ValueError on an odd question."""
        action = text("action", action)
        asked = checked(action, plain.taken(kwargs))
        if action == names.CLOCK:
            return {"at": time.monotonic_ns()}
        if action == names.UNREGISTER:
            await self.stop()
            return {}
        if action == names.RELEASE:
            if asked["window"] is not None:
                self._windows.forget(asked["window"], "its client gave it up")
            self._leases -= Counter([asked["client"]])
            await self._stop_if_unused()
            return {}
        if action == names.STACKS:  # a failed meter is no reason not to look
            return await self.accounts.stacks.answer(asked)
        if action == names.ASIDE:
            return await self.accounts.stacks.take_aside(asked)
        if self.guard.off is not None:
            raise RuntimeError(self.guard.off)
        if action == names.OPEN:
            await self._windows.open(asked["window"], asked["client"], asked["span"], asked)
            return {"leased": None not in self._leases, "source": self.options.source}
        if action == names.CLOSE:
            return await self._windows.close(asked["window"], asked["graphs"] or 0)
        if action in (names.LIFE, names.HISTORY):
            began = time.monotonic_ns()
            await self.ask_snapshots()
            if action == names.LIFE:
                return await replies.packed(replies.of_life(self.accounts))
            return await replies.packed(replies.of_history(self.accounts, asked["last"], asked=began))
        if action == names.LIVE:
            self.accounts.poll()
            return replies.of_live(self.accounts)
        if action == names.LEFT:
            return {"left": encode_left(self.accounts.left)}
        if action == names.STRAGGLERS:
            self.accounts.poll()
            findings = await self._windows.with_lines(self.accounts.findings)
            return {"stragglers": [one.to_dict() for one in findings], "workers": len(self.scheduler.workers)}
        part = self.parts.answering(action)
        if part is None:
            raise ValueError(f"unknown action {short(action)}, or its part is not installed or failed")
        return await part.answer(action, asked)

    async def closing(self) -> None:
        """The scheduler closes."""
        if not self.closed and self.guard.off is None:
            await self.parts.each_in_turn("closing")
