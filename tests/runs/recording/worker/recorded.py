from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.accounts.worker.log import Entry, Moved, Taken
from dask_efficiency.runs.recording.worker import recorder
from dask_efficiency.runs.recording.worker.recorder import WorkerRecorder
from dask_efficiency.runs.trace.batch import RUN, decode


class Recorded(WorkerRecorder):
    """A worker's recorder without a worker, which adds up how long tasks held their slots; it watches no shuffle."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        state = SimpleNamespace(tasks={}, executing=set())
        worker: Any = SimpleNamespace(state=state, digests_total={}, address="tcp://worker", log_event=self.log_event)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recorder, "watch_shuffles", lambda *_: None)
            super().__init__(worker, "recording")
        self.held = 0

    def read(self, entries: Iterable[Entry], *, whole: bool) -> None:
        entries = list(entries)
        assert not any(isinstance(entry, Taken) and entry.begun is None for entry in entries)
        assert not any(isinstance(entry, Moved) and entry.done is None for entry in entries)
        super().read(entries, whole=whole)

    def log_event(self, topic: str, message: Any) -> None:
        self.sent.append(message)

    def rows(self, **flush: bool) -> list[dict[str, int]]:
        """All rows since the last call."""
        self.flush(**flush)
        assert self.failure is None
        rows = [dict(zip(RUN, row, strict=True)) for sent in self.sent for row in decode(sent).runs.tolist()]
        self.sent.clear()
        return rows

    def all_held(self, now: int) -> int:
        going_on = 0
        for row in self.rows(running=True):
            left = next((row[name] for name in ("seceded", "ended") if row[name] != MISSING), now)
            if row["ended"] != MISSING:
                self.held += left - row["executing"]
            elif row["executing"] != MISSING:
                going_on += left - row["executing"]
        return self.held + going_on
