"""Notes for :mod:`benchmarks.upstream_suite`: a pytest plugin, a preload, and a watch of logs.

It is copied into the scratch tree and imported there by its own name: in the process of pytest (``-p``), in schedulers
(as a preload), and by ``sitecustomize`` in every Python that is started (so: PYTEST_DONT_REWRITE). It imports nothing
but the standard library until it is used, and writes each note as one line at once: processes are killed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from typing import Any

#: Environment: the file of notes; ids of tests that need not run any more; modules to preload; the way.
NOTES = "UPSTREAM_SUITE_NOTES"
DONE = "UPSTREAM_SUITE_DONE"
PRELOAD = "UPSTREAM_SUITE_PRELOAD"
TRACE = "UPSTREAM_SUITE_TRACE"

PACKAGE = "dask_efficiency"

#: What upstream does not count on itself, or marks as too long or too special for each machine.
EXCLUDED = ("flaky", "slow", "gpu", "avoid_ci", "memray", "ipython")


def note(**what: Any) -> None:
    line = (json.dumps(what) + "\n").encode()
    file = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def _test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


# -- errors of ours that distributed swallowed ---------------------------------------------------


def watch_logs() -> None:
    """Note each log record with an exception that went through the package, and each warning of the package."""
    make = logging.getLogRecordFactory()

    def noting(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        # A wait that was cancelled is no failure.
        owners = [_owners(one) for one in _chain(error) if isinstance(one, Exception)]
        warned = record.name.startswith(PACKAGE) and record.levelno >= logging.WARNING
        if warned or any(PACKAGE in each for each in owners):
            note(
                kind="logged",
                test=_test(),
                by=record.name,
                level=record.levelname,
                message=record.getMessage()[:500],
                # What the package replaced passes errors of upstream's on.
                raised=warned or any(each[-1:] == [PACKAGE] for each in owners),
                trace="".join(traceback.format_exception(error))[-6000:] if error is not None else "",
            )
        return record

    logging.setLogRecordFactory(noting)


def _chain(error: BaseException | None) -> list[BaseException]:
    """An error and all that led to it."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _owners(error: BaseException) -> list[str]:
    """Through which of the package and distributed an error went, outermost first."""
    codes = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    # What awaits handlers step by step is where errors of theirs come out of an `await`, with no frame below.
    paths = (code.co_filename.split(os.sep) for code in codes if code.co_name != "_in_steps")
    return [name for path in paths for name in (PACKAGE, "distributed") if name in path]


# -- which schedulers had the plugin: a preload after the package's own --------------------------


def dask_setup(scheduler: Any) -> None:
    """Note that a scheduler starts, and whether it has the plugin."""
    note(
        kind="scheduler",
        test=_test(),
        id=scheduler.id,
        where=_where(scheduler),
        tls=scheduler.address.startswith("tls://"),
        preloaded="dask-efficiency" in scheduler.plugins,
    )


def dask_teardown(scheduler: Any) -> None:
    """Note whether it metered to its end."""
    plugin = scheduler.plugins.get("dask-efficiency")
    meter = getattr(plugin, "_meter", None)
    note(
        kind="closed",
        test=_test(),
        id=scheduler.id,
        # A test may take all plugins away, or close a scheduler before it has started.
        metered=meter is not None and meter.guard.off is None,
        off=None if meter is None else meter.guard.off,
    )


def _where(scheduler: Any) -> str:
    if os.getpid() != int(os.environ.get("UPSTREAM_SUITE_PID", "0")):
        return "dask scheduler" if any("scheduler" in a or a == "dask" for a in sys.argv) else "process of a test"
    return getattr(scheduler, "_upstream_suite_where", "?")


def _remember_where() -> None:
    import distributed
    from distributed.deploy import spec
    from distributed.utils_test import start_cluster

    made_by = {start_cluster.__code__: "gen_cluster", spec.SpecCluster._start.__code__: "LocalCluster"}
    initialise = distributed.Scheduler.__init__

    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        frame, where = sys._getframe(1), "test itself"
        while frame is not None:
            where = made_by.get(frame.f_code, where)
            frame = frame.f_back  # type: ignore[assignment]
        self._upstream_suite_where = where
        initialise(self, *args, **kwargs)

    noting.__wrapped__ = initialise  # type: ignore[attr-defined]
    distributed.Scheduler.__init__ = noting  # type: ignore[method-assign]


# -- pytest ----------------------------------------------------------------------------------------


def pytest_configure(config: Any) -> None:
    """Turn the plugin on wherever upstream's tests take their configuration from."""
    os.environ["UPSTREAM_SUITE_PID"] = str(os.getpid())
    for mark in ("flaky", "avoid_ci"):
        config.addinivalue_line("markers", f"{mark}: of upstream")
    if preload := os.environ.get(PRELOAD):
        from distributed.config import defaults

        # Through the environment, it is in dask.config as utils_test finds and restores it; but tests with a
        # configuration of their own, such as those of TLS, begin with these.
        defaults["distributed"]["scheduler"]["preload"] = preload.split()
        if os.environ.get(TRACE):
            defaults[PACKAGE.removeprefix("dask_")] = {"trace": True}
    _remember_where()


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave out what is excluded, and what was done before an interruption."""
    with open(os.environ[DONE]) as file:
        done = set(file.read().splitlines())
    out = [item for item in items if item.nodeid in done or any(map(item.get_closest_marker, EXCLUDED))]
    if out:
        config.hook.pytest_deselected(items=out)
        gone = set(out)
        items[:] = [item for item in items if item not in gone]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note what runs, lest it never end."""
    note(kind="started", test=nodeid)


_failures: dict[str, tuple[str, str]] = {}


def pytest_runtest_logreport(report: Any) -> None:
    if report.failed:
        _failures.setdefault(report.nodeid, ("failed", f"{report.when}: {report.longreprtext[-3000:]}"))
    elif report.skipped:
        _failures.setdefault(report.nodeid, ("xfailed" if hasattr(report, "wasxfail") else "skipped", ""))
    if report.when == "teardown":
        outcome, why = _failures.pop(report.nodeid, ("passed", ""))
        note(kind="test", test=report.nodeid, outcome=outcome, why=why)
