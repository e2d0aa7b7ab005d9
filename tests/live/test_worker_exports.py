"""A worker's own metrics are its accounts, under names of their own, on its own page only."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dask_efficiency.accounts.worker.balance import Balance, Outcome, Used
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.live import worker_exports
from dask_efficiency.live.exposition import text
from dask_efficiency.live.prometheus import ClusterCollector, Export
from dask_efficiency.live.worker_exports import WorkerExports, metrics
from dask_efficiency.plugin.guard import Guard
from tests.live.prometheus_process import lint, needs_promtool
from tests.live.test_prometheus import Source

SECOND = 1_000_000_000


def balance(*, cpu: int = SECOND, running: int = 0, free: int = 0) -> Balance:
    """Two threads: one had a task that succeeded, the other may have one that runs."""
    ledger = Ledger(2, at=0)
    ledger.reserve("done", "task", at=0)
    hold = ledger.release("done", at=cpu)
    assert hold is not None
    ledger.finalize(hold, Outcome.SUCCEEDED, cpu=cpu, wall=cpu)
    if running:
        ledger.reserve("runs", "task", at=cpu)
    return ledger.balance(at=cpu + running + free, used={"runs": Used(running // 2, running)})


def samples(written: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("dask_efficiency_local_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(written)
        for sample in family.samples
    }


def test_the_accounts_are_exported_in_seconds_and_free_time_as_the_worker_can_tell_it() -> None:
    found = samples(text(metrics(balance(cpu=3 * SECOND, running=2 * SECOND))).decode())
    assert found["thread_seconds_total", "thread-cpu"] == 3
    assert found["thread_activity_seconds_total", "thread-cpu"] == 3 + 1
    assert found["thread_activity_seconds_total", "thread-noncpu"] == 1
    assert found["thread_seconds_total", "idle-or-no-work"] == 3 + 2
    assert (found["running_thread_seconds",], found["nthreads",]) == (2, 2)
    assert found["thread_seconds_total", "failed"] == found["thread_seconds_total", "paused"] == 0


@given(st.integers(1, 10**15), st.integers(0, 10**15), st.integers(0, 10**15))
def test_activities_add_up_and_so_do_buckets_plus_running_tasks(cpu: int, running: int, free: int) -> None:
    accounts = balance(cpu=cpu, running=running, free=free)
    found = samples(text(metrics(accounts)).decode())
    whole = accounts.nthreads * accounts.elapsed / 1e9
    for family, beside in (("thread_activity_seconds_total", 0.0), ("thread_seconds_total", accounts.running / 1e9)):
        assert sum(n for (name, *_), n in found.items() if name == family) + beside == pytest.approx(whole)


def test_no_name_is_one_that_the_scheduler_has() -> None:
    collector = ClusterCollector()
    collector._exports.append(Export(Source()))
    names = {metric.name for metric in collector.collect()}
    assert "dask_efficiency_worker_thread_seconds" in names
    assert not names & {metric.name for metric in metrics(balance())}


@needs_promtool
def test_promtool_finds_nothing_wrong() -> None:
    assert lint(text(metrics(balance())).decode()) == ""


class PrometheusHandler:
    """Called as Dask's is, by which it is found."""

    def __init__(self) -> None:
        self.answer = b""

    def write(self, more: bytes) -> None:
        self.answer += more

    def get(self) -> None:
        self.write(b"dask_worker_threads 2.0\n")


def pages() -> Any:
    """A worker's pages, with the one for metrics among them."""
    rules = [SimpleNamespace(target=target) for target in (SimpleNamespace, PrometheusHandler)]
    return SimpleNamespace(wildcard_router=SimpleNamespace(rules=rules))


def scraped(application: Any) -> str:
    handler = application.wildcard_router.rules[1].target()
    if (answering := handler.get()) is not None:  # Dask's own is no coroutine
        asyncio.run(answering)
    answer: bytes = handler.answer
    return answer.decode()


def exporting(application: Any, accounts: Balance | None) -> WorkerExports:
    made = WorkerExports(application, lambda: accounts, Guard("the export", "no more metrics"))
    made.start()
    return made


def test_each_worker_of_a_process_has_its_own_until_it_stops() -> None:
    first, second, third = pages(), pages(), pages()
    exports = [exporting(first, balance(cpu=SECOND)), exporting(second, balance(cpu=2 * SECOND))]
    for page, cpu in ((first, 1), (second, 2)):
        found = samples(scraped(page))
        assert (found["dask_worker_threads",], found["thread_seconds_total", "thread-cpu"]) == (2, cpu)
    assert scraped(third) == "dask_worker_threads 2.0\n"
    for export in exports:
        export.stop()
        export.stop()
    assert scraped(first) == scraped(second) == "dask_worker_threads 2.0\n"


def test_before_the_first_snapshot_and_without_a_page_for_metrics_nothing_happens() -> None:
    page = pages()
    exporting(page, None)
    assert scraped(page) == "dask_worker_threads 2.0\n"
    exporting(SimpleNamespace(), balance()).stop()


def test_a_failure_leaves_dasks_answer_as_it_is_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_exports, "metrics", lambda _: 1 / 0)
    page = pages()
    exporting(page, balance())
    with caplog.at_level(logging.ERROR):
        assert scraped(page) == scraped(page) == "dask_worker_threads 2.0\n"
    assert len([record for record in caplog.records if record.name == "dask_efficiency"]) == 1
