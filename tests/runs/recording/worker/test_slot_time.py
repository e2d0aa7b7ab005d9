"""Slot time agrees between a worker's accounts and its recorder of a real log, however it is read."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS, Balance
from dask_efficiency.accounts.worker.log import Spilled, from_plain, to_plain
from dask_efficiency.accounts.worker.slots import Slots
from dask_efficiency.runs.recording.worker import recorder
from tests.plugin.worker.test_pending import Worker
from tests.runs.recording.worker.recorded import Recorded

SCENE = json.loads((Path(__file__).parents[3] / "data" / "scenes" / "one_worker.json").read_text())
LOG = from_plain(SCENE["log"])


#: Entries before a window is opened.
MIDDLE = len(LOG) // 2


def accounts_and_trace(cuts: list[int]) -> tuple[Balance, list[dict[str, int]], Any]:
    """The worker's balance, the rows of its trace, and all else that is known, of the log in batches."""
    worker = Worker(SCENE["nthreads"], at=SCENE["begins"])
    worker.computed = 1_000_000
    slots, recorded = Slots(worker.ledger), Recorded()
    for start, stop in pairwise([0, *sorted([*cuts, MIDDLE]), len(LOG)]):
        entries = LOG[start:stop]
        for entry in entries:
            if isinstance(entry, Spilled):
                worker.spills._note(entry.at, entry.stop)
        slots.read(entries)
        recorded.read(entries, whole=False)
        worker.pending.finalize(slots.take(all_of_them=stop in (MIDDLE, len(LOG))), at=SCENE["ends"])
        if stop == MIDDLE:
            worker.ledger.open_window("w", at=LOG[MIDDLE][0])
            worker.pending.sizes.open_window("w")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "monotonic_ns", lambda: SCENE["ends"])
        balance, rows = worker.ledger.balance(at=SCENE["ends"]), recorded.rows(closing=True)
    window = worker.ledger.close_window("w", at=SCENE["ends"]), worker.pending.sizes.close_window("w")
    known = worker.pending.overhead, worker.pending.made(), worker.threads.claimed, slots.unnoticed
    return balance, rows, (window, known, sorted(worker.rated))


AT_ONCE = accounts_and_trace([])


@given(cuts=st.lists(st.integers(0, len(LOG)), max_size=20))
def test_wherever_the_log_of_a_real_worker_is_cut_the_accounts_and_the_trace_are_those_of_then(cuts):
    balance, rows, _ = found = accounts_and_trace(cuts)
    assert found == AT_ONCE
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
