"""Timelines: what the slots were doing, since the accounts began and in each open window."""

from __future__ import annotations

from collections.abc import Iterable

from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.cluster.timeline import ActivityFeed, Timeline, TimelineRecorder
from dask_efficiency.plugin.decorations import decoration


class Timelines:
    """Follows the workers in every timeline; once that has failed, in none any more.

    Parameters
    ----------
    at
        When the accounts began, monotonic nanoseconds.
    """

    def __init__(self, *, at: int) -> None:
        self._feed = ActivityFeed()
        self._life = TimelineRecorder(at=at)
        self._of_windows: list[TimelineRecorder] = []
        #: Why there is no timeline any more; empty while there is.
        self._failure: list[str] = []

    def begin(self, *, at: int) -> TimelineRecorder:
        """One more timeline, of a window."""
        recorder = TimelineRecorder(at=at)
        self._of_windows.append(recorder)
        return recorder

    def end(self, recorder: TimelineRecorder) -> None:
        """A window is over."""
        if recorder in self._of_windows:
            self._of_windows.remove(recorder)

    def follow(self, present: Iterable[Presence], *, at: int) -> None:
        """Note what the workers did since the last call, until ``at``, which is now."""
        if self._failure:
            return
        with decoration("timeline", self._failure):
            stretches = self._feed.read(present, at=at)
            for recorder in (self._life, *self._of_windows):
                recorder.add(stretches)

    def timeline(self, recorder: TimelineRecorder | None = None, *, at: int) -> Timeline:
        """What the slots were doing until ``at``; since the accounts began where no recorder is given.

        Raises
        ------
        RuntimeError
            If following the workers has failed.
        """
        if self._failure:
            raise RuntimeError(self._failure[0])
        return (recorder or self._life).timeline(at=at, uncovered=self._feed.uncovered(at=at))
