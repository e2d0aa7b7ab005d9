"""Workers die now and then; finished results that were left on them until the end are computed once more.

source: dask/distributed issue 7870; also PrefectHQ/prefect issue 12970, prefect-archive/prefect-dask pull request 102
date:   2023-05-31 (the others 2023-06-02 to 2023-07-03)
seen:   long independent tasks on machines that may be taken away; when a worker went, not only the task it was at, but
        all tasks that it had finished were run again elsewhere.
cause:  a finished result lives in the memory of the worker that made it. As long as the client holds the future, the
        scheduler owes it that result, and makes it anew if the worker is gone.
cure:   the pull request: fetch each result as it comes (as_completed) and release its future, so that nothing is owed;
        otherwise store results outside of the workers.

Two of the tasks bring their worker process down, once each.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from distributed import Client, as_completed, wait

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SAMPLES = scaled(24)
FATAL = (SAMPLES * 5 // 8, SAMPLES * 7 // 8)

EXPECTED = Expected(
    cause="worker processes died (twice) during the run, and the finished results of analyse that lay on them were lost"
    " and computed again; more executions of analyse than there are samples",
    place="the task function analyse (it brings the process down: os._exit), and the wait, which leaves all results on"
    " the workers until every one is done",
    cure="find out why the workers die; and do not leave results on them: collect each as it is done and release its"
    " future (as_completed), or write results to storage / replicate them",
    says=r"(workers?|process(es)?|nanny)\b.{0,60}\b(died?|dies|dying|dead|death|lost|lose|kill|crash|exit|vanish|gone"
    r"|left"
    r"|fail|restart|terminat|disappear|went|remov|end(ed|s)\b)"
    r"|(lost|died|dead|dying|killed|crashed|failed|restarted|vanished|terminated|departed|exited|exit|death|loss"
    r"|losing)"
    r"\b.{0,40}(workers?|process|results?)|results?\b.{0,40}\b(lost|gone)"
    r"|(comput\w+|ran|run|executed|execution|done|made|repeat\w*)\b.{0,40}\b(again|twice|anew|more than once|once more)"
    r"|re-?comput|re-?run|re-?execut|repeat",
    places=(*marked(__file__), function("analyse"), r"os\._exit"),
    cures=r"as_completed|replicat|checkpoint|(writ|stor|sav)(e|es|ed|ing)\b|storage|on disk|to disk|retire"
    r"|(collect|gather|fetch|take|release|retrieve|pull|get)\b.{0,60}\b(as|when|once|soon|each|early|earlier|results?"
    r"|futures?)|not (leave|keep|hold)|why\b|(find|look|check|see|learn)\b.{0,60}(log|reason|cause|what|exit|die|death)"
    r"|\blogs?\b|stable",
    never={
        r"(?i)(ran|run|went|runs) (out|short) of memory|(?<!if )memory limit was": "they exit by themselves",
        HOLDS_GIL: "one thread a worker",
        r"(?i)\bretries ?=|(set|use) retries": "no task raised an exception",
        r"(?i)scheduler('s)? overhead": "there are two dozen tasks",
    },
)


def analyse(sample: int, folder: str) -> int:
    compute_for(0.5)
    mark = Path(folder) / str(sample)
    if sample in FATAL and not mark.exists():
        mark.touch()
        # A native library crashes, or the machine is taken away.
        os._exit(1)  # <- here
    return sample * sample % 1009


def bad(client: Client) -> float:
    with tempfile.TemporaryDirectory() as folder:
        futures = client.map(analyse, range(SAMPLES), folder=folder)
        wait(futures)  # <- here
        return sum(client.gather(futures))


def good(client: Client) -> float:
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        futures = client.map(analyse, range(SAMPLES), folder=folder)
        for future, result in as_completed(futures, with_results=True):
            total += result
            future.release()
    return total
