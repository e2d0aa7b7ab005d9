"""The Grafana dashboards on the real thing: every query gives numbers, and the numbers fit together."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from dashboards.prove import (
    CHOICES,
    JOBS,
    SHOWN,
    Question,
    ask,
    boards,
    cluster_under_prometheus,
    lose_time,
    prove,
    questions,
)
from tests.fleet.prometheus.answering import answering
from tests.live.prometheus_process import Prometheus, needs_prometheus, scraping
from tests.plugin.watch import eventually

pytestmark = [pytest.mark.cluster, needs_prometheus]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """After the workload, with the cluster still there."""
    with cluster_under_prometheus(tmp_path_factory.mktemp("prometheus")) as (client, server):
        kept = lose_time(client, server)
        failed = f'increase(dask_efficiency_worker_thread_seconds_total{{bucket="failed"}}[{SHOWN}s])'
        eventually(lambda: server.value(f"min({failed}) > 0"))
        yield server
        del kept


def question(title: str, ref: str = "A", *, dashboard: str = "Dask efficiency / Overview") -> Question:
    (found,) = [
        asked
        for board in boards()
        for asked in questions(board)
        if (asked.dashboard, asked.where, asked.ref) == (dashboard, title, ref)
    ]
    return found


def number(prometheus: Prometheus, title: str, ref: str = "A", *, job: str = "dask") -> float:
    expr = question(title, ref).substituted({"job": job})
    ((value,),) = eventually(lambda: [found for _, *found in prometheus.query(expr)])
    return value


def test_every_query_of_every_dashboard_gives_numbers_whatever_is_chosen(prometheus):
    answers = prove(prometheus)
    assert {choice for choice, *_ in answers} == CHOICES.keys()
    assert len(answers) > 100
    assert [(choice, asked.where, asked.ref, answer.fault) for choice, asked, answer in answers if answer.fault] == []


def test_a_choice_that_nothing_matches_shows_nothing_rather_than_nan(prometheus):
    for board in boards():
        for asked in questions(board):
            if asked.kind != "values":
                assert ask(prometheus, asked, {"job": "no-such-job"}).fault == "no data", asked


def test_efficiency_is_a_share_and_the_ideal_is_shorter_than_the_actual_time(prometheus):
    efficiency = number(prometheus, "Efficiency")
    actual, ideal = (number(prometheus, "Actual and ideal time", ref) for ref in "AB")
    assert 0 < efficiency < 1
    assert 0 < ideal < actual < SHOWN
    assert ideal / actual == pytest.approx(efficiency, rel=0.2)  # they are asked for a moment apart


def _is(prometheus: Prometheus, expr: str, expected: float) -> bool:
    return prometheus.value(expr) == expected


def test_both_ways_of_scraping_a_scheduler_count_twice_only_when_both_are_chosen(prometheus):
    threads = question("Workers and threads", "B")
    for chosen, expected in ({}, 4 * len(JOBS)), ({"job": "dask"}, 4), ({"cluster": "alpha"}, 4):
        eventually(partial(_is, prometheus, threads.substituted(chosen), expected))


def test_the_layers_of_the_stack_add_up_to_the_line(prometheus):
    stack = [question("What the threads did", ref).substituted({"job": "dask"}) for ref in "ABCDE"]

    def all_layers() -> float:
        return sum(value for layer in stack for _, value in prometheus.query(layer))

    assert eventually(lambda: number(prometheus, "What the threads did", "F") == 4)
    assert eventually(lambda: all_layers() == pytest.approx(4, rel=0.2))


def test_the_slices_of_the_pie_are_all_of_the_thread_time(prometheus):
    slices = prometheus.query(question("Where the thread time went", "A").substituted({"job": "dask"}))
    assert len(slices) == 6
    rest = number(prometheus, "Where the thread time went", "B")
    whole = prometheus.value(f'sum(increase(dask_efficiency_thread_activity_seconds_total{{job="dask"}}[{SHOWN}s]))')
    assert whole is not None
    assert sum(value for _, value in slices) + rest == pytest.approx(whole, rel=0.2)


def test_each_kind_of_finding_is_listed_once_with_no_more_than_the_time_shown(prometheus):
    findings = eventually(lambda: prometheus.query(question("What costs most").substituted({"job": "dask"})))
    kinds = [labels["kind"] for labels, _ in findings]
    assert len(set(kinds)) == len(kinds)
    for labels, seconds in findings:
        assert labels["finding"] == labels["advice"] == labels["kind"]
        assert 0 < seconds < SHOWN


def test_a_scheduler_that_cannot_be_scraped_any_more_is_a_target_down(tmp_path):
    down = question("Targets down").substituted({})
    with ExitStack() as stack:
        scheduler = stack.enter_context(answering(lambda path, body: (200, b"dask_efficiency_nthreads 4\n")))
        with scraping(scheduler.url.removeprefix("http://"), tmp_path, jobs=JOBS) as prometheus:
            eventually(lambda: prometheus.value("count(dask_efficiency_nthreads)") == len(JOBS))
            eventually(lambda: prometheus.value(down) == 0)
            stack.close()
            eventually(lambda: prometheus.value(down) == len(JOBS))
