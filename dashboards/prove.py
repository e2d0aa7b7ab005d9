"""Runs every query of the Grafana dashboards on a real Prometheus that scrapes a real Dask cluster.

``python -m dashboards.prove`` in the repository's root takes half a minute and prints a table. It exits with 1
if a query fails or gives no number, and with 2 if there is no Prometheus. The dashboards are the files as they
ship; Grafana has no part in it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Future, LocalCluster, wait

from dashboards.generate import FOLDER
from dask_efficiency import EfficiencyPlugin
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.plugin.scheduler.straggler_watch import StragglerReporter
from tests.live.prometheus_process import Prometheus, scraping
from tests.plugin.pretended_gpu import pretend_gpu
from tests.plugin.tasks import fail, incompressible, nap, spin, weigh
from tests.plugin.watch import addresses, eventually, set_status

#: What the dashboards show, in seconds: all of the workload, also on a busy machine. Grafana's variables follow it.
SHOWN = 300

BUILT_IN = {"__rate_interval": "4s", "__range": f"{SHOWN}s", "__interval": "1s", "__interval_ms": "1000"}

#: The same scheduler, scraped with and without a label ``cluster``.
JOBS = {"dask": {}, "labelled": {"cluster": "alpha"}}

#: What may be chosen on the dashboards. "All" is the value that each variable has for it.
CHOICES = {
    "all": {},
    "no cluster label": {"job": "dask"},
    "one cluster, one worker": {"cluster": "alpha", "worker": "0"},
}

#: For the annotations. Those that ship need minutes to fire.
RULE = """
groups:
  - name: proof
    rules: [{alert: DaskEfficiencyProof, expr: dask_efficiency_nthreads > 0, labels: {severity: info}}]
"""


@dataclass(frozen=True, slots=True)
class Question:
    """One query of a dashboard, as it stands there."""

    dashboard: str
    #: Title of the panel, or name of the variable or annotation.
    where: str
    ref: str
    #: ``instant``, ``range`` or ``values``.
    kind: str
    expr: str
    #: What the dashboard's variables are at "All".
    all_values: Mapping[str, str]

    def substituted(self, chosen: Mapping[str, str]) -> str:
        """The query that Grafana sends."""
        values = {**BUILT_IN, **self.all_values, **{name: chosen[name] for name in chosen if name in self.all_values}}
        return re.sub(r"\$(\w+)", lambda found: values[found[1]], self.expr)


@dataclass(frozen=True, slots=True)
class Answer:
    """What Prometheus says to it."""

    series: int
    #: What is wrong; empty if nothing.
    fault: str = ""


def questions(board: Mapping[str, Any]) -> Iterator[Question]:
    """Every query of a dashboard: its variables', its annotations', its panels'."""
    variables = [variable for variable in board["templating"]["list"] if variable["type"] == "query"]
    every = {variable["name"]: variable["allValue"] for variable in variables}

    def question(where: str, ref: str, kind: str, expr: str) -> Question:
        return Question(board["title"], where, ref, kind, expr, every)

    for variable in variables:
        yield question(f"${variable['name']}", "", "values", variable["query"]["query"])
    for annotation in board["annotations"]["list"]:
        yield question(annotation["name"], "", "range", annotation["expr"])
    for panel in panels(board):
        for target in panel.get("targets", ()):
            kind = "instant" if target["instant"] else "range"
            yield question(panel["title"], target["refId"], kind, target["expr"])


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All panels of a dashboard, those of folded rows included, and the rows themselves."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


def ask(prometheus: Prometheus, question: Question, chosen: Mapping[str, str]) -> Answer:
    """What Prometheus answers for one choice of the variables."""
    expr = question.substituted(chosen)
    try:
        if question.kind == "values":
            series, label = _arguments(expr)
            found = prometheus.label_values(label, series)
            return Answer(len(found), "" if found else "no values")
        if question.kind == "instant":
            numbers = [[value] for _, value in prometheus.query(expr)]
        else:
            numbers = [values for _, values in prometheus.query_range(expr, seconds=SHOWN, step=2)]
    except ValueError as refused:
        return Answer(0, str(refused))
    if not numbers:
        return Answer(0, "no data")
    strange = [value for values in numbers for value in values if not math.isfinite(value)]
    return Answer(len(numbers), f"{len(strange)} times {strange[0]}" if strange else "")


def _arguments(expr: str) -> tuple[str, str]:
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", expr)
    assert found is not None, f"{expr}; expected label_values(series, label)"
    return found[1], found[2]


#: Early spilling, and a worker that is killed has the time that it needs to come back on a slow machine.
SETTINGS = {
    "distributed.worker.memory.target": 0.05,
    "distributed.worker.memory.spill": 0.1,
    "distributed.deploy.lost-worker-timeout": "1 hour",
}


@contextmanager
def cluster_under_prometheus(folder: Path) -> Iterator[tuple[Client, Prometheus]]:
    """Two workers with two threads each that spill early, and a Prometheus that scrapes their scheduler."""
    with (
        dask.config.set(SETTINGS),
        LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            memory_limit="1 GiB",
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
        scraping(f"127.0.0.1:{cluster.scheduler.http_server.port}", folder, jobs=JOBS, rules=RULE) as prometheus,
    ):
        client.register_plugin(EfficiencyPlugin())
        eventually(lambda: prometheus.value("count(dask_efficiency_nthreads)") == len(JOBS))
        yield client, prometheus


def lose_time(client: Client, prometheus: Prometheus) -> list[Future]:
    """A workload that loses time in every way that a panel is about; gives what must stay in memory meanwhile.

    Worker 0 has a part of each, so that there is something to see when it is the only one chosen.
    """
    each = addresses(client)

    def on(worker: str, function: Callable[..., Any], *arguments: Any) -> Future:
        # Other workers too: what is lost with a worker is computed elsewhere.
        return client.submit(function, *arguments, workers=[worker], allow_other_workers=True, pure=False)

    wait([on(worker, spin, 0.2) for worker in each])
    wait([on(worker, _spin_and_fail, 0.3) for worker in each])
    arrays = [on(worker, incompressible, 20 * 2**20, seed) for worker in each for seed in range(6)]
    spills = (
        'min(increase(dask_efficiency_worker_thread_activity_seconds_total{activity="spill", worker="0"}[10s])) > 0'
    )
    # A series that begins with all that there will be shows no increase.
    eventually(lambda: wait(client.map(weigh, arrays, pure=False)) and prometheus.value(spills))
    results = [on(each[0], spin, 0.3) for _ in range(2)]
    wait(results)
    os.kill(client.run(os.getpid, workers=each[:1])[each[0]], signal.SIGKILL)
    eventually(lambda: prometheus.value('min(dask_efficiency_tasks_total{outcome="recomputed"}) > 0'))
    client.wait_for_workers(2)
    for status in ("paused", "running"):
        client.run(set_status, status=status)
        waiting = client.map(nap, [0.1] * 4, pure=False)
        time.sleep(2)
    wait(waiting)
    cancelled = client.map(nap, [1.5] * 2, pure=False)
    time.sleep(0.5)
    client.cancel(cancelled)
    client.run_on_scheduler(_pretend_straggler)
    client.run(pretend_gpu)
    eventually(lambda: prometheus.value('min(dask_efficiency_tasks_total{outcome="cancelled"}) > 0'))
    eventually(lambda: prometheus.value("min(increase(dask_efficiency_worker_gpu_seconds_total[10s])) > 0"))
    return [*arrays, *results]


class _Pretended(StragglerReporter):
    """Two workers alone give none to see."""

    @property
    def findings(self) -> tuple[SlowWorker, ...]:
        return (SlowWorker("0", "127.0.0.1", Cause.CONTENTION, 2.0, 0.9, time.time(), 1.5),)


def _pretend_straggler(dask_scheduler: Any) -> None:
    dask_scheduler.plugins[EfficiencyPlugin.name]._meter.accounts.stragglers.__class__ = _Pretended


def _spin_and_fail(cpu_seconds: float) -> None:
    spin(cpu_seconds)
    fail()


def boards() -> list[dict[str, Any]]:
    """The dashboards that ship."""
    return [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]


def prove(prometheus: Prometheus) -> list[tuple[str, Question, Answer]]:
    """Every query of every dashboard, for every choice; faulty ones again and again, 120 times in all."""
    tries = iter(range(120))

    def answer(question: Question, chosen: Mapping[str, str]) -> Answer:
        found = ask(prometheus, question, chosen)
        # On a busy machine a scrape may take too long, and what was scraped before counts as gone.
        while found.fault and next(tries, None) is not None:
            time.sleep(0.5)
            found = ask(prometheus, question, chosen)
        return found

    return [
        (choice, question, answer(question, chosen))
        for board in boards()
        for question in questions(board)
        for choice, chosen in CHOICES.items()
    ]


def main() -> int:
    """Prove, and print what was found; the exit code."""
    if shutil.which("prometheus") is None:
        print("prometheus is not installed: apt-get install prometheus", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, cluster_under_prometheus(Path(folder)) as (client, prometheus):
        kept = lose_time(client, prometheus)
        time.sleep(3)
        answers = prove(prometheus)
        del kept
    for choice, question, answer in answers:
        where = f"{question.where} {question.ref}".strip()
        print(f"{question.dashboard:27} {where:45} {choice:24} {answer.series:3} series  {answer.fault}".rstrip())
    faults = sum(bool(answer.fault) for *_, answer in answers)
    print(f"\n{len(answers)} queries, {faults} of them without data or with a fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
