"""Simulations run on machines that may be taken away, and the results are fetched at the end.

source: dask/distributed issue 7870
date:   2023-05-31
seen:   long tasks on cloud machines that can vanish at any time. When one goes, not only the task it was at is run
        again elsewhere, but also all those it had finished, so that the work does not come to an end.
cause:  the results of finished tasks lie in the memory of the worker that made them as long as the client holds their
        futures; with the worker they are lost, and since they are still wanted, Dask computes them again.
cure:   take the results (or store them) as soon as they are there and let the futures go: as_completed with results,
        without keeping a list; or fire_and_forget for tasks that write their results themselves.

Here the machines are taken away by a thread of this program, which kills the worker with the most finished jobs when
10, 16 and 22 of 24 jobs are done.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from distributed import Client, as_completed

from benchmarks.public_reports.programs import TWO_BY_ONE, Expected, compute_for, function, marked, scaled

CLUSTER = TWO_BY_ONE
JOBS = scaled(24)
TAKEN_AT = [round(JOBS * part) for part in (0.42, 0.67, 0.92)]

EXPECTED = Expected(
    cause="finished work is done again: workers die (three times), and with each the results of its finished tasks are"
    " lost, because they are kept only there until the end; Dask recomputes them",
    place="futures = client.map(...) held in a list until client.gather at the end; in tasks: `simulate` ran far more"
    " often than there are jobs",
    cure="fetch each result as soon as it is finished and release its future (as_completed(..., with_results=True)"
    " without a list of futures), or let the tasks store their results; and use more stable workers",
    says=r"(workers?|process(es)?|nanny)\b.{0,60}\b(died?|dies|dying|dead|death|lost|lose|kill|crash|exit|vanish|gone"
    r"|left"
    r"|fail|restart|terminat|disappear|went|remov|end(ed|s)\b)"
    r"|(lost|died|dead|dying|killed|crashed|failed|restarted|vanished|terminated|departed|exited|exit|death|loss"
    r"|losing)"
    r"\b.{0,40}(workers?|process|results?)|results?\b.{0,40}\b(lost|gone)"
    r"|(comput\w+|ran|run|executed|execution|done|made|repeat\w*)\b.{0,40}\b(again|twice|anew|more than once|once more)"
    r"|re-?comput|re-?run|re-?execut|repeat",
    places=(*marked(__file__), function("simulate"), r"\bgather\b"),
    cures=r"as_completed|replicat|checkpoint|(writ|stor|sav)(e|es|ed|ing)\b|storage|on disk|to disk|fire_and_forget"
    r"|(collect|gather|fetch|take|release|retrieve|pull|get)\b.{0,60}\b(as|when|once|soon|each|early|earlier|results?"
    r"|futures?)|not (leave|keep|hold)|why\b|(find|look|check|see|learn)\b.{0,60}(log|reason|cause|what|exit|die|death)"
    r"|\blogs?\b|stable",
    never={
        r"(?i)(ran|run|went|runs) (out|short) of memory|(?<!if )memory limit was": "they are killed from outside",
        r"(?i)\bretries ?=|(set|use) retries": "no task raises",
        r"(?im)(^|[.:;])\s*(add|use|start) more workers": "they would be taken away as well",
        r"(?i)tasks are uneven|gathering (of the results )?is slow": "work is done again",
    },
)


class SpotMarket(threading.Thread):
    """Takes machines away, as a cloud does: kills the busiest worker when enough jobs have been done."""

    def __init__(self, records: Path) -> None:
        super().__init__(daemon=True)
        self.records = records
        self.over = threading.Event()

    def run(self) -> None:
        dead: set[int] = set()
        for wanted in TAKEN_AT:
            while True:
                if self.over.wait(0.02):
                    return
                done = [record.name.split(".") for record in self.records.glob("*.done")]
                if len({job for job, _, _ in done}) >= wanted:
                    break
            makers = Counter(int(pid) for _, pid, _ in done if int(pid) not in dead)
            for pid, _ in makers.most_common(1):
                dead.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def simulate(job: int, records: str) -> float:
    """Half a second of work."""
    compute_for(0.4)
    (Path(records) / f"{job}.{os.getpid()}.done").touch()
    return float(np.sin(np.linspace(0.0, 1.0 + job, 50_000)).sum())


@contextlib.contextmanager
def machines_on_the_market() -> Iterator[str]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as records:
        market = SpotMarket(Path(records))
        market.start()
        try:
            yield records
        finally:
            market.over.set()
            market.join()


def bad(client: Client) -> float:
    with machines_on_the_market() as records:
        futures = client.map(simulate, range(JOBS), records=records)  # <- here
        return sum(client.gather(futures))


def good(client: Client) -> float:
    total = 0.0
    with machines_on_the_market() as records:
        for _, result in as_completed(client.map(simulate, range(JOBS), records=records), with_results=True):
            total += result
    return total
