"""Each task adds another handler to the same logger, so that every message is written more and more often.

source: dask/distributed issue 5973; a like case: getlogbook/logbook issue 185
date:   2022-03-21 (the like case 2015-12-16)
seen:   a process runs many jobs one after the other. Messages appear several times in the log, and the longer the
        process lives, the slower logging gets: at the end there are more than a thousand handlers.
cause:  loggers live as long as the process. Setting up the log within the job adds a handler for every job and removes
        none, and each message goes to all of them.
cure:   set the log up once in each worker process (or remove the handler at the end of the task).
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    LONGER_TASKS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
JOBS = scaled(380)
MESSAGES = 40

EXPECTED = Expected(
    cause="logging: every job adds a handler to the logger, and each message is written by all handlers so far, so"
    " jobs get slower and slower",
    place="audit, where it logs, or log_to, which adds the handler",
    cure="set up the handler once in each worker",
    says=r"\bhandlers?\b|\blogg(ing|er)\b|\blog (messages?|records?|calls?|lines?|files?)\b|\b(get|gets|become|grow"
    r"|took|take)s? (slower|longer)|slower and slower|\b(emit|flush|callHandlers)\b|(many )?small writes|writ(es"
    r"|ing) .{0,30}files?\b",
    places=(
        *marked(__file__),
        function("audit"),
        function("log_to"),
        r"\b(emit|flush|callHandlers|handle|info|_log|format)\b",
    ),
    cures=r"\bhandlers?\b|\bonce\b|(log|write) less|fewer (messages|log|writes|calls)|\blogging\b|per (worker"
    r"|process)|plugin|remove|buffer|log level",
    never={
        LONGER_TASKS: "what takes long is what the tasks do, and it grows",
        LOCK: "one thread a worker: nothing waits for the lock of a handler",
    },
)


def log_to(path: str) -> logging.Logger:
    logger = logging.getLogger("audit")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(logging.FileHandler(path))  # <- here
    return logger


def log_once_to(path: str) -> logging.Logger:
    logger = logging.getLogger("audit-once")
    return logger if logger.handlers else _set_up(logger, path)


def _set_up(logger: logging.Logger, path: str) -> logging.Logger:
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(logging.FileHandler(path))
    return logger


def work(logger: logging.Logger, job: int) -> int:
    compute_for(0.01)
    for message in range(MESSAGES):
        logger.info("job %d has seen record %d", job, message)  # <- here
    return job % 5


def audit(job: int, path: str) -> int:
    return work(log_to(path), job)  # <- here


def audit_once(job: int, path: str) -> int:
    return work(log_once_to(path), job)


def _log_file() -> str:
    return str(Path(tempfile.mkdtemp(dir=folder("handlers_pile_up"))) / "audit.log")


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(audit, range(JOBS), path=_log_file()))))


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(audit_once, range(JOBS), path=_log_file()))))
