from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.buckets import Bucket, causes_of
from dask_efficiency.accounts.details import WindowDetails
from dask_efficiency.accounts.lines import Frame, SampleRow
from dask_efficiency.accounts.wire.heartbeats import decode, encode
from dask_efficiency.accounts.wire.snapshots import Snapshot
from dask_efficiency.accounts.worker.answer import answer_of
from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.reservations import MAX_WINDOWS
from dask_efficiency.accounts.worker.waiting import WaitingSums
from dask_efficiency.plugin.worker import worker_causes as module
from dask_efficiency.plugin.worker.worker_causes import SWITCHED_OFF, WorkerCauses

PROFILE = {SampleRow("thread-noncpu", "gil", "inc", (Frame("f", "x.py", 1),)): 5}


class Sampler:
    """A sampler without threads of its own."""

    def __init__(self, *args: Any) -> None:
        self.off: str | None = None
        self.sums = WaitingSums()
        self.spent = self.began = 0
        self.windows: set[str] = set()
        self.open_window = self.windows.add
        self.stop = self.tick_now = lambda: None

    def go_on(self, former: Sampler) -> None:
        self.sums, self.windows = former.sums, former.windows

    def start(self) -> None:
        self.began += 1

    def close_window(self, window: str) -> WindowDetails | None:
        return WindowDetails(profile=PROFILE) if window in self.windows else None


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Sampler]:
    """The samplers that were made, oldest first."""
    samplers: list[Sampler] = []
    monkeypatch.setattr(module, "WaitingSampler", lambda *args: samplers.append(Sampler()) or samplers[-1])
    return samplers


def worker_causes(*, enabled: bool = True) -> WorkerCauses:
    found = WorkerCauses(SimpleNamespace(state=None), SimpleNamespace())  # type: ignore[arg-type]
    found.start(enabled=enabled)
    return found


def ran(ledger: Ledger, start: int, *, wall: int, cpu: int, stop: int) -> None:
    """A task that succeeded."""
    ledger.reserve(start, "inc", "span", at=start)
    ledger.finalize(ledger.release(start, at=stop), Outcome.SUCCEEDED, wall=wall, cpu=cpu)


def test_causes_add_up_to_the_accounts_as_the_scheduler_checks_them(made):
    whole = worker_causes()
    ledger = Ledger(1, at=0)
    parts = {"hand-over": 0, "event-loop": 0}
    sums = made[0].sums
    for i in range(5):
        ran(ledger, 100 * i, wall=60, cpu=20, stop=100 * i + 80)
        sums.add(("span", "inc"), "gil", 3 * (i + 1))
        sums.add(("span", "inc"), "lock", 7)
        parts = {"hand-over": parts["hand-over"] + 12, "event-loop": parts["event-loop"] + 4}
        balance = ledger.balance(at=100 * i + 90)
        found = whole.of_snapshot(balance, parts)
        decode(encode(Snapshot("a", i, balance, causes=found)))  # refuses what does not add up
        assert sum(causes_of(found.finalized, Bucket.THREAD_NONCPU).values()) == 40 * (i + 1)
        overhead = {"hand-over": 12 * (i + 1), "event-loop": 4 * (i + 1), "unknown": 4 * (i + 1)}
        assert causes_of(found.finalized, Bucket.OVERHEAD) == overhead
    assert found.not_sampled == ""


def test_without_sampling_the_overhead_and_the_reason_are_reported(made):
    for whole, reason in ((worker_causes(enabled=False), SWITCHED_OFF), (worker_causes(), "not Linux")):
        made[-1].off = "not Linux"
        ledger = Ledger(1, at=0)
        ran(ledger, 0, wall=60, cpu=20, stop=80)
        found = whole.of_snapshot(ledger.balance(at=90), {"hand-over": 20, "event-loop": 0})
        assert (found.finalized, found.not_sampled) == ({"overhead/hand-over": 20}, reason)


def test_a_window_has_the_causes_and_the_profile_of_its_own_time(made):
    whole = worker_causes()
    ledger = Ledger(1, at=0)
    made[0].sums.add(("span", "inc"), "sleep", 1_000)
    ledger.open_window("w", at=100)
    whole.open_window("w", {"hand-over": 50, "event-loop": 50})
    ran(ledger, 100, wall=60, cpu=20, stop=180)
    made[0].sums.add(("span", "inc"), "gil", 9)
    made[0].sums.add(("span", "inc"), "lock", 3)
    balance = ledger.close_window("w", at=200)
    assert balance is not None
    found = whole.close_window("w", balance, {"hand-over": 60, "event-loop": 55}, {})
    assert found == answer_of(
        balance,
        causes={("span", "inc"): {"gil": 30, "lock": 10}},
        overhead={"hand-over": 10, "event-loop": 5},
        details=WindowDetails(profile=PROFILE),
    )


def test_windows_that_are_never_closed_are_forgotten(made):
    whole = worker_causes()
    for i in range(MAX_WINDOWS + 3):
        whole.open_window(str(i), {})
    assert list(whole._opened) == [str(i) for i in range(3, MAX_WINDOWS + 3)]


def test_sampling_keeps_its_sums_when_it_is_switched_on_again(made):
    whole = worker_causes()
    whole.start(enabled=True)
    assert [sampler.began for sampler in made] == [1]
    whole.start(enabled=False)
    assert whole.not_sampled == SWITCHED_OFF
    whole.start(enabled=True)
    assert whole.not_sampled == ""
    assert [sampler.began for sampler in made] == [1, 1]
    assert (made[1].sums, made[1].windows) == (made[0].sums, made[0].windows)


def test_library_threads_count_once_any_was_sampled(made):
    whole = worker_causes()
    assert whole.library() is None
    made[0].sums.any_library = True
    assert whole.library() is not None


def test_the_accounts_go_on_without_causes_after_a_failure(made, monkeypatch, caplog):
    whole = worker_causes()
    ledger = Ledger(1, at=0)
    ledger.open_window("w", at=0)
    whole.open_window("w", {})
    ran(ledger, 0, wall=60, cpu=20, stop=80)

    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("of a test")

    for name in ("library", "library_so_far", "explain", "explain_activity", "since"):
        monkeypatch.setattr(made[0].sums, name, broken)
    balance = ledger.balance(at=90)
    found = whole.of_snapshot(balance, {})
    arrived = decode(encode(Snapshot("a", 1, balance, causes=found)))
    assert isinstance(arrived, Snapshot)
    assert arrived.causes == found
    assert (found.finalized, found.active) == ({}, {})
    assert found.not_sampled == "finding causes failed: ZeroDivisionError: of a test"
    window = ledger.close_window("w", at=95)
    assert window is not None
    assert whole.close_window("w", window, {}, {}) == answer_of(window)
    reservation = ledger.reserve("x", "inc", at=95)
    assert reservation is not None
    made[0].sums.any_library = True
    library = whole.library()
    assert library(reservation, 5) == whole.library_so_far(reservation, 5) == 0
    assert [record.levelname for record in caplog.records] == ["ERROR"]
