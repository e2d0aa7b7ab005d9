"""Slot time agrees between a worker's ledger and its recorder of a real log; test_hooks has it of made-up ones."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.log import from_plain, to_plain
from dask_efficiency.accounts.worker.slots import Slots
from dask_efficiency.runs.recording.worker import recorder
from tests.runs.recording.worker.recorded import Recorded

SCENE = json.loads((Path(__file__).parents[3] / "data" / "scenes" / "one_worker.json").read_text())
LOG = from_plain(SCENE["log"])


@given(cuts=st.lists(st.integers(0, len(LOG)), max_size=20))
def test_wherever_the_log_of_a_real_worker_is_cut_the_accounts_and_the_trace_are_those_of_then(cuts):
    ledger = Ledger(SCENE["nthreads"], at=SCENE["begins"])
    slots, recorded = Slots(ledger), Recorded()
    for start, stop in pairwise([0, *sorted(cuts), len(LOG)]):
        slots.read(LOG[start:stop])
        recorded.read(LOG[start:stop], whole=False)
    for reservation, outcome, moved, _ in slots.take(all_of_them=True):
        wall = 0 if moved.run is None else moved.run[1] - moved.run[0]
        ledger.finalize(reservation, outcome, wall=wall)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "monotonic_ns", lambda: SCENE["ends"])
        balance, rows = ledger.balance(at=SCENE["ends"]), recorded.rows(closing=True)
    assert balance.tasks == SCENE["tasks"]
    assert len(rows) == sum(balance.tasks.values())
    held = [(row["ended"] if row["seceded"] == MISSING else row["seceded"]) - row["executing"] for row in rows]
    threads = balance.nthreads * balance.elapsed
    assert sum(balance.finalized.values()) == threads
    assert sum(held) == threads - sum(balance.finalized[bucket] for bucket in FREE_BUCKETS)
    assert sum(row["seceded"] != MISSING for row in rows) == 1


def test_a_log_as_plain_data_is_the_log_and_a_row_that_is_no_entry_is_refused_by_name() -> None:
    assert from_plain(json.loads(json.dumps(to_plain(LOG)))) == LOG
    assert {type(entry).__name__ for entry in LOG} == {"Noted", "Taken", "Moved", "Observed", "Spilled"}
    for name, *values in (["Lost", 1], ["Taken", 1, "x"], ["Turned"]):
        with pytest.raises(ValueError, match=rf"a row is '{name}' and {len(values)} values; expected one of"):
            from_plain([[name, *values]])
