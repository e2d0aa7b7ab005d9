"""Values of a report's profile: on which lines threads computed and waited, and who held the GIL meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from dask_efficiency.accounts.profile import Place, Stack


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """How long tasks of one prefix were at one place, for one reason."""

    #: ``thread-cpu``, ``library-threads`` or ``thread-noncpu``.
    bucket: str
    #: One of :data:`~dask_efficiency.accounts.causes.CAUSES`; empty for a bucket without causes.
    cause: str
    prefix: str
    #: Of the task, without what Dask called it by; empty where it is not kept.
    stack: Stack
    #: Nanoseconds as sampled: all rows of a bucket, cause and prefix together are its whole.
    ns: int

    @property
    def place(self) -> Place:
        """Where and why, without how long."""
        return Place(self.bucket, self.cause, self.prefix, self.stack)


@dataclass(frozen=True, slots=True)
class GilHolder:
    """Who had the GIL while tasks of one prefix waited for it."""

    #: Of the tasks that waited.
    prefix: str
    #: Of the holder's task, or :data:`~dask_efficiency.accounts.profile.EVENT_LOOP`.
    holder: str
    #: Where the holder was.
    stack: Stack
    #: Nanoseconds of the waiting that are put down to it.
    ns: int


@dataclass(frozen=True, slots=True)
class Hold:
    """One stretch of time in which one thread kept all others from the GIL, or blocked its event loop."""

    worker: str
    #: Prefix of its task, or :data:`~dask_efficiency.accounts.profile.EVENT_LOOP`.
    holder: str
    stack: Stack
    seconds: float
