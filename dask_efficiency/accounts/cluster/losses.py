"""Losses: the cost of each worker that left, and its reason."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dask_efficiency.accounts.rows import cap, scale_down

#: Reason of a worker that left, if none is known.
NOT_KNOWN = "nobody knows why"
#: Start of the reason if a worker was above its memory limit.
FOR_MEMORY = "killed by its nanny"
#: Reason if a signal killed it; its end if the kernel sent it for lack of memory.
SIGKILLED = "killed by SIGKILL"
BY_KERNEL = "by the kernel: out of memory"
#: And if the kernel counted none there.
BY_OTHERS = "perhaps by a batch system or somebody: the kernel did not count it"
#: Nanoseconds for which live views and metrics name the tasks with which several workers were lost. A guess.
KILLERS_NS = 900_000_000_000
#: Samples of a worker's memory that are kept to tell how it died, and tasks in its threads. A guess that bounds memory.
MAX_OF_LOSS = 32


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Memory of a worker's process, some time before the worker was lost."""

    nbytes: int
    ns_before: int


@dataclass(frozen=True, slots=True)
class TaskInThread:
    """A task in a thread of a worker that was lost."""

    key: str
    prefix: str
    #: Time for which it had run at the last heartbeat; None if the worker took it up, at most, after that.
    ran_seconds: float | None = None


@dataclass(slots=True, eq=False)
class Loss:
    """A worker that left, why, and what that cost; filled as it becomes known."""

    #: The mark of the tasks whose results were lost with it.
    mark: str = ""
    worker: str = ""
    address: str = ""
    memory_limit: int | None = None
    left: int = 0
    in_order: bool = False
    reason: str = ""
    noticed: str = ""
    #: Its host, a file that counts its control group's kills for memory, and their number at its last heartbeat.
    oom_kills: tuple[str, str, int] | None = None
    #: Its tasks by prefix when it was removed; None if unknown.
    assigned: Mapping[str, int] | None = None
    #: Its ``lost-worker`` time, and that of its running tasks by prefix.
    ns: int = 0
    prefixes: Mapping[str, int] = field(default_factory=dict)
    in_threads: Sequence[TaskInThread] = ()
    #: Instant and bytes of the last samples of its process's memory, oldest first.
    memory: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=MAX_OF_LOSS))

    def sample_memory(self, nbytes: int, *, at: int) -> None:
        """Note its memory at an instant, which may be before the last one: a nanny's look travels its own way."""
        self.memory.append((at, nbytes))
        if len(self.memory) > 1 and at < self.memory[-2][0]:
            self.memory = deque(sorted(self.memory), MAX_OF_LOSS)

    @property
    def last_memory(self) -> list[MemorySample]:
        """The last samples of its memory, oldest first."""
        return [MemorySample(nbytes, max(0, self.left - at)) for at, nbytes in self.memory]

    @property
    def why(self) -> str:
        """Reason why it left, or else the way in which that was noticed."""
        return self.reason or self.noticed or NOT_KNOWN


def killers(in_threads: Iterable[Iterable[TaskInThread]]) -> dict[str, int]:
    """Number of workers, by the keys that were in a thread of two or more as these were lost; the most first."""
    found = Counter(task.key for tasks in in_threads for task in tasks)
    return {key: workers for key, workers in found.most_common() if workers > 1}


def recent_killers(losses: Iterable[Loss], *, at: int) -> dict[str, int]:
    """:func:`killers` among the workers that were lost lately."""
    return killers(loss.in_threads for loss in losses if at - loss.left < KILLERS_NS and not loss.in_order)


def by_prefix(
    lost: int, nthreads: int, holding: Mapping[str, Sequence[int]], assigned: Mapping[str, int] | None
) -> dict[str, int]:
    """Estimate the part of a lost worker's time that its running tasks held, by prefix.

    From the last heartbeat (``holding``: nanoseconds and slots) on, a prefix is taken to have held as many slots as
    then, and no more than it had tasks assigned there in the end (None if unknown).
    """
    since = max(0, lost - sum(ns for ns, _ in holding.values())) // nthreads
    rows = {
        prefix: ns + since * (slots if assigned is None else min(slots, assigned.get(prefix, 0)))
        for prefix, (ns, slots) in holding.items()
    }
    return {prefix: ns for prefix, ns in cap(rows, lost).items() if ns}


def in_window(loss: Loss, ns: int) -> dict[str, int]:
    """Divide a window's part of a loss by prefix, pro rata; under "" is the rest."""
    return cap({**loss.prefixes, "": loss.ns - sum(loss.prefixes.values())}, ns)


def costs(
    losses: Iterable[tuple[Loss, Mapping[str, int]]], recomputed: Mapping[str, Sequence[int]], whole: int, tasks: int
) -> list[dict[str, Any]]:
    """List the costs of workers that vanished, or with which results were lost.

    Losses come with their nanoseconds by prefix, as of :func:`in_window`; ``recomputed`` has nanoseconds and tasks by
    :attr:`Loss.mark`, and ``whole`` and ``tasks`` are those of all: what the marks lack is the last row.
    """
    went = list(losses)
    again, numbers = ([recomputed.get(loss.mark, (0, 0))[i] for loss, _ in went] for i in range(2))
    again = scale_down(again, min(whole, sum(again)))  # a task that had begun before the window is whole in its mark
    rows = [
        {
            "worker": loss.worker,
            "reason": loss.why,
            "in_order": loss.in_order,
            "ns": sum(lost.values()),
            "prefixes": {prefix: ns for prefix, ns in lost.items() if prefix and ns},
            "recomputed_ns": ns,
            "recomputed_tasks": number,
            "in_threads": [asdict(task) for task in loss.in_threads],
            "last_memory": [asdict(sample) for sample in loss.last_memory],
            "memory_limit": loss.memory_limit,
        }
        for (loss, lost), ns, number in zip(went, again, numbers, strict=True)
        if not loss.in_order or number
    ]
    rest, others = whole - sum(again), max(0, tasks - sum(numbers))
    if rest:
        unknown: dict[str, Any] = {"worker": "", "reason": "", "in_order": False, "ns": 0, "prefixes": {}}
        unknown |= {"in_threads": [], "last_memory": [], "memory_limit": None}
        rows.append({**unknown, "recomputed_ns": rest, "recomputed_tasks": others})
    return rows
