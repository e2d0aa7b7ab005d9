"""Parts: additions of wings to the meter of a worker or of the scheduler, each behind a guard of its own.

A meter calls its parts without importing them: they are looked up by name in :mod:`~dask_efficiency.plugin.wings`. A
part that fails is logged once and called no more; the meter goes on, and reports why the part is off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Self, TypeVar
from weakref import ref

from distributed.scheduler import WorkerState

from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.wings import ANSWERED_BY, OFFERED, offered


class Part:
    """Base of both kinds of parts: every method does nothing until a part overrides it."""

    @classmethod
    def of(cls, meter: Any) -> Self:
        """Make the part for a meter, of which it uses public attributes only."""
        raise TypeError(f"{cls.__name__} cannot be made of a meter")

    def start(self) -> None:
        """Start, after the meter is in place."""

    def stop(self) -> None:
        """Stop, as the meter is removed or this part failed; safe to call twice."""

    async def answer(self, action: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer an action of :data:`~dask_efficiency.plugin.wings.ANSWERED_BY`; errors go to the caller."""
        raise ValueError(f"unknown action {action!r}")


class WorkerPart(Part):
    """Part of a worker's meter."""

    #: CPU nanoseconds that it used in threads of this process.
    in_threads = 0

    def heartbeat(self) -> None:
        """Called before a heartbeat is sent."""

    def closing(self) -> None:
        """Called when the worker closes, before its final snapshot."""

    def outside(self) -> dict[str, int]:
        """Nanoseconds of this part outside the buckets, by the name for display."""
        return {}


class SchedulerPart(Part):
    """Part of the scheduler's meter."""

    async def configured(self) -> None:
        """Called when options change, and once after the meter has started."""

    def meter_failed(self) -> None:
        """Called when the meter failed and stops measuring."""

    async def closing(self) -> None:
        """Called when the scheduler closes."""

    def hook(self, metered: Callable[..., None]) -> Callable[..., None]:
        """Wrap the hook that the scheduler calls for every transition of every task."""
        return metered

    def worker_joined(self, address: str, ws: WorkerState) -> None:
        """Called for each worker that joins."""

    def worker_left(self, address: str, stimulus_id: str | None) -> None:
        """Called for each worker that was removed."""

    def client_left(self, client: str) -> None:
        """Called for each client that was removed."""

    def graph_taken_in(self, client: str, tasks: list[Any], wanted: Any, stimulus_id: str) -> None:
        """Called for each graph that was taken in."""

    def event(self, topic: str, message: Any) -> None:
        """Called for each event that was logged."""

    def take_heartbeat(self, address: str, ws: WorkerState, at: int) -> None:
        """Called for each heartbeat that was read; it arrived at ``at``, in monotonic nanoseconds."""

    def round_over(self, unread: Mapping[str, Any]) -> None:
        """Called when all heartbeats of a round are read, except those at these addresses."""

    async def window_opens(self, window: str, wanted: Mapping[str, Any]) -> None:
        """Called before a window is opened; ``wanted`` has the wishes of its report."""

    async def window_closes(self, window: str, opened: int, reply: dict[str, Any], notes: list[str]) -> None:
        """Called when a window closes, which was opened at this instant: add to the reply, or add a note."""

    def window_forgotten(self, window: str) -> None:
        """Called when a window is gone."""


PartT = TypeVar("PartT", bound=Part)


class Parts(Generic[PartT]):
    """Parts of one meter, of kind ``"worker"`` or ``"scheduler"``, the first half of the names in OFFERED."""

    def __init__(self, kind: str, meter: Any) -> None:
        self._kind = kind
        self._meter = ref(meter)  # no cycle: the meter owns these
        self._parts: dict[str, tuple[PartT, Guard]] = {}
        #: By method: overrides of parts, bound, with their guards.
        self._called: dict[str, list[tuple[Callable[..., Any], Guard]]] = {}

    def stop(self) -> None:
        """Stop and forget all parts; the next :meth:`load` makes them again."""
        self.each("stop")
        self._parts.clear()
        self._called.clear()

    def load_all(self) -> None:
        """Make all installed parts of this kind."""
        for name in OFFERED:
            if name.startswith(f"{self._kind}/"):
                self.load(name.removeprefix(f"{self._kind}/"))

    def load(self, name: str) -> PartT | None:
        """Part of a name, made at the first call; None if it is not installed, or failed."""
        if name not in self._parts:
            made = offered(f"{self._kind}/{name}")
            if made is None:
                return None
            part: PartT = made.of(self._meter())
            consequence = f"dask_efficiency goes on without its part {name!r} on the {self._kind}"
            self._parts[name] = part, Guard(f"the part {name!r}", consequence, part.stop)
            self._called.clear()
        return self.get(name)

    def get(self, name: str) -> PartT | None:
        """Part of a name; None if it was not made, or failed."""
        part, guard = self._parts.get(name, (None, None))
        return part if guard is None or guard.off is None else None

    def __iter__(self) -> Iterator[PartT]:
        return iter([part for part, guard in self._parts.values() if guard.off is None])

    def failures(self) -> list[str]:
        """Reasons of the parts that failed."""
        return [guard.off for _, guard in self._parts.values() if guard.off is not None]

    def each(self, method: str, *args: Any) -> None:
        """Call a method of every part; one that fails is called no more."""
        for call, guard in self._calls(method):
            guard(call, *args)

    async def each_in_turn(self, method: str, *args: Any) -> None:
        """Await a method of every part; one that fails is called no more."""
        for call, guard in self._calls(method):
            if guard.off is None:
                try:
                    await call(*args)
                except Exception as error:
                    guard.fail(error)

    def _calls(self, method: str) -> list[tuple[Callable[..., Any], Guard]]:
        """Overrides of a method, with the guards of their parts."""
        if method not in self._called:
            idle = {getattr(kind, method, None) for kind in (Part, WorkerPart, SchedulerPart)}
            overriding = [both for both in self._parts.values() if getattr(type(both[0]), method) not in idle]
            self._called[method] = [(getattr(part, method), guard) for part, guard in overriding]
        return self._called[method]

    def answering(self, action: str) -> PartT | None:
        """Part that answers an action; None if there is none, or it is not installed, or failed."""
        name = ANSWERED_BY.get(f"{self._kind}/{action}")
        return None if name is None else self.load(name.partition("/")[2])
