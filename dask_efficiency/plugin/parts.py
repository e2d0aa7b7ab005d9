"""Parts: what a wing adds to the meter on a worker or on the scheduler. One protocol for each, and one guard a part.

A meter calls its parts, and knows none of them: they are looked up by name in :mod:`~dask_efficiency.plugin.wings`. A
part that fails is logged once and called no more; the meter goes on, and the part says why it is off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from weakref import ref

from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.wings import ANSWERED_BY, OFFERED, offered

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState


class Part:
    """What both kinds of parts have. What a part does not need, it leaves as it is here: nothing happens."""

    @classmethod
    def of(cls, meter: Any) -> Self:
        """The part of a meter; what it may use of the meter is public there."""
        raise TypeError(f"{cls.__name__} cannot be made of a meter")

    def start(self) -> None:
        """The meter is in place."""

    def stop(self) -> None:
        """The meter goes, or this part failed; safe to call twice."""

    async def answer(self, action: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer an action that is put down to it in the table of wings; what is raised goes to who asked."""
        raise ValueError(f"unknown action {action!r}")


class WorkerPart(Part):
    """A part of a worker's meter."""

    #: CPU nanoseconds that it took in threads of this process.
    in_threads = 0

    def heartbeat(self) -> None:
        """A heartbeat is about to be sent."""

    def closing(self) -> None:
        """The worker closes; its final snapshot is made next."""

    def outside(self) -> dict[str, int]:
        """Nanoseconds that this part took and no bucket has, by the name under which they are shown."""
        return {}


class SchedulerPart(Part):
    """A part of the scheduler's meter."""

    async def configured(self) -> None:
        """The options are in force from now on; called once the meter has started, too."""

    def meter_failed(self) -> None:
        """The meter failed, and measures nothing more."""

    async def closing(self) -> None:
        """The scheduler closes."""

    def hook(self, metered: Callable[..., None]) -> Callable[..., None]:
        """What the scheduler calls for every transition of every task, given what it calls without this part."""
        return metered

    def worker_joined(self, address: str, ws: WorkerState) -> None:
        """A worker is there."""

    def worker_left(self, address: str, stimulus_id: str | None) -> None:
        """A worker was removed."""

    def client_left(self, client: str) -> None:
        """A client was removed."""

    def graph_taken_in(self, client: str, tasks: list[Any], wanted: Any, stimulus_id: str) -> None:
        """A client's graph was taken in."""

    def event(self, topic: str, message: Any) -> None:
        """An event was logged."""

    def take_heartbeat(self, address: str, ws: WorkerState, at: int) -> None:
        """A worker's heartbeat was read, which came at ``at``, in monotonic nanoseconds."""

    def round_over(self, unread: Mapping[str, Any]) -> None:
        """All heartbeats of a round are read, but for those at these addresses."""

    async def window_opens(self, window: str, wanted: Mapping[str, Any]) -> None:
        """A window is about to be opened, for a report that wants this of its parts."""

    async def window_closes(self, window: str, opened: int, reply: dict[str, Any], notes: list[str]) -> None:
        """A window that was opened at this instant is closed: add to the reply what it wanted, or a note."""

    def window_forgotten(self, window: str) -> None:
        """A window is gone."""


PartT = TypeVar("PartT", bound=Part)


class Parts(Generic[PartT]):
    """The parts of one meter.

    Parameters
    ----------
    kind
        ``"worker"`` or ``"scheduler"``: which names of :data:`~dask_efficiency.plugin.wings.OFFERED` are its parts'.
    meter
        What parts are made of.
    """

    def __init__(self, kind: str, meter: Any) -> None:
        self._kind = kind
        self._meter = ref(meter)  # which has these
        self._parts: dict[str, tuple[PartT, Guard]] = {}
        #: By method, the parts that have one of their own, bound, with their guards.
        self._called: dict[str, list[tuple[Callable[..., Any], Guard]]] = {}

    def stop(self) -> None:
        """Stop and forget all parts; they are made anew when they are asked for again."""
        self.each("stop")
        self._parts.clear()
        self._called.clear()

    def load_all(self) -> None:
        """Make all parts that are installed."""
        for name in OFFERED:
            kind, _, part = name.partition("/")
            if kind == self._kind:
                self.load(part)

    def load(self, name: str) -> PartT | None:
        """The part of a name, made now if it was not; None where it is not installed, or failed."""
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
        """The part of a name; None where it was not made, or failed."""
        part, guard = self._parts.get(name, (None, None))
        return part if guard is None or guard.off is None else None

    def __iter__(self) -> Iterator[PartT]:
        return iter([part for part, guard in self._parts.values() if guard.off is None])

    def failures(self) -> list[str]:
        """Why each part is off that failed."""
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
        """The parts that do anything in a method."""
        found = self._called.get(method)
        if found is None:
            idle = {getattr(kind, method, None) for kind in (Part, WorkerPart, SchedulerPart)}
            found = [
                (getattr(part, method), guard)
                for part, guard in self._parts.values()
                if getattr(type(part), method) not in idle
            ]
            self._called[method] = found
        return found

    def answering(self, action: str) -> PartT | None:
        """The part that answers an action; None where there is none, or it is not installed or failed."""
        name = ANSWERED_BY.get(f"{self._kind}/{action}")
        return None if name is None else self.load(name.partition("/")[2])
