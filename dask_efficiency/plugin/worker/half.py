"""WorkerHalf: as much of a worker's half, which travels by value, as its meter uses."""

from __future__ import annotations

from typing import Any, Protocol


class WorkerHalf(Protocol):
    """What :class:`~dask_efficiency.plugin.bootstrap.EfficiencyWorkerPlugin` brings along."""

    #: The registration that it belongs to.
    session: str
    max_prefixes: int
    #: Windows that are open when it arrives, and the recording that goes on.
    windows: list[str]
    recording: str | None
    #: Which tasks to profile while it goes on: by who asked, how many of each prefix.
    profile: dict[str, dict[str, int]]
    #: The options of these names.
    gpu: str
    waiting: bool
    sensors: bool

    def transition(self, key: Any, start: Any, finish: Any, **kwargs: Any) -> None:
        """Dask's hook; the meter may replace it on the instance."""
