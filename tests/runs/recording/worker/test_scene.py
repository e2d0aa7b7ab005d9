"""The log of a real worker, read without one: every reader says what was said then, wherever the log is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS, Balance
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.log import Entry, from_plain, to_plain
from dask_efficiency.accounts.worker.slots import Slots
from dask_efficiency.runs.recording.worker import recorder as module
from dask_efficiency.runs.recording.worker.recorder import WorkerRecorder
from dask_efficiency.runs.trace.batch import RUN, decode

SCENE = json.loads((Path(__file__).parents[3] / "data" / "scenes" / "one_worker.json").read_text())
LOG = from_plain(SCENE["log"])


class Reader:
    """All that reads the log of a worker."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.ledger = Ledger(SCENE["nthreads"], at=SCENE["begins"])
        self.slots = Slots(self.ledger)
        state = SimpleNamespace(tasks={}, executing=set())
        worker: Any = SimpleNamespace(state=state, digests_total={}, address="tcp://worker", log_event=self._log_event)
        self.recorder = WorkerRecorder(worker, "scene")

    def _log_event(self, topic: str, message: Any) -> None:
        self.sent.append(message)

    def read(self, entries: list[Entry]) -> None:
        self.slots.read(entries)
        self.recorder.read(entries, whole=False)
        assert self.recorder.failure is None

    def balance(self) -> Balance:
        for reservation, outcome, moved, _ in self.slots.take(all_of_them=True):
            wall = 0 if moved.run is None else moved.run[1] - moved.run[0]
            self.ledger.finalize(reservation, outcome, wall=wall)
        return self.ledger.balance(at=SCENE["ends"])

    def rows(self) -> list[dict[str, int]]:
        self.recorder.flush(closing=True)
        return [dict(zip(RUN, row, strict=True)) for message in self.sent for row in decode(message).runs.tolist()]


@pytest.fixture(scope="module", autouse=True)
def clock() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "monotonic_ns", lambda: SCENE["ends"])
        patch.setattr(module, "LoopWatch", lambda *_: SimpleNamespace(stop=lambda: None))
        yield


@given(st.lists(st.integers(0, len(LOG)), max_size=20))
def test_wherever_the_log_is_cut_the_accounts_and_the_trace_are_those_of_then(cuts: list[int]) -> None:
    reader = Reader()
    edges = [0, *sorted(cuts), len(LOG)]
    for start, stop in pairwise(edges):
        reader.read(LOG[start:stop])
    balance = reader.balance()
    assert balance.tasks == SCENE["tasks"]
    assert sum(balance.finalized.values()) == SCENE["nthreads"] * (SCENE["ends"] - SCENE["begins"])
    rows = reader.rows()
    held = [(row["ended"] if row["seceded"] == MISSING else row["seceded"]) - row["executing"] for row in rows]
    free = sum(balance.finalized[bucket] for bucket in FREE_BUCKETS)
    assert sum(held) == SCENE["nthreads"] * balance.elapsed - free
    assert len(rows) == sum(SCENE["tasks"].values())
    assert sum(row["seceded"] != MISSING for row in rows) == 1


def test_a_log_as_plain_data_is_the_log() -> None:
    assert from_plain(json.loads(json.dumps(to_plain(LOG)))) == LOG
    assert {type(entry).__name__ for entry in LOG} == {"Noted", "Taken", "Moved", "Observed", "Spilled"}


@pytest.mark.parametrize("row", [["Lost", 1], ["Taken", 1, "x"], ["Turned"]])
def test_what_is_no_entry_is_refused_by_name(row: list[Any]) -> None:
    with pytest.raises(ValueError, match=rf"a row is '{row[0]}' and {len(row) - 1} values; expected one of"):
        from_plain([row])
