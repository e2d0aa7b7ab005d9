"""The events of ``benchmarks/chaos.py``: a table of functions of the bed."""

from __future__ import annotations

import copy
import os
import random
import signal
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.chaos_bed import MEMORY, WORKERS, Bed, eventually, total
from dask_efficiency import efficiency_report, load_report, unregister
from dask_efficiency.plugin.names import METRIC, PLUGIN, WORKER_PLUGIN
from dask_efficiency.plugin.wings import OFFERED
from dask_efficiency.runs.trace.schema import RunOutcome

#: Of the exceptions that are put in.
INJECTED = "put in by chaos"


# -- workers -------------------------------------------------------------------------------


def swell(path: str) -> int:
    """Takes more memory than there is, the first time."""
    if not os.path.exists(path):
        Path(path).touch()
        taken = [os.urandom(2**20) for _ in range(MEMORY // 2**20)]
        time.sleep(60)
        del taken
    return 1


def out_of_memory(bed: Bed) -> None:
    """A nanny kills its worker, which a task makes too large."""
    swelling = bed.client.submit(swell, str(bed.folder / "swell") + str(bed.rng.random()))
    eventually(swelling.done, "a task whose worker is killed")
    assert swelling.result() == 1


def stop_and_continue(bed: Bed) -> None:
    pid = bed.victim()[2]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(bed.rng.uniform(0.5, 6))
    os.kill(pid, signal.SIGCONT)


def scale(bed: Bed, n: int) -> None:
    bed.scale(n)
    eventually(partial(bed.scale, n), f"{n} workers")
    time.sleep(bed.rng.uniform(0, 2))


def block_loop(seconds: float) -> None:
    time.sleep(seconds)


def step_clock(bed: Bed) -> None:
    """A worker's clock of the day is set. Not far back: tornado's timers would wait until it is as late again."""
    address, seconds = bed.victim()[1], bed.rng.choice([-5, 5, 3_600, 86_400])
    bed.on(address, set_clock, seconds=seconds)
    time.sleep(bed.rng.uniform(0.5, 3))
    if seconds <= 5:
        bed.on(address, set_clock, seconds=0)


def set_clock(seconds: float) -> None:
    """Be so far ahead of the real clock."""
    real = vars(time).setdefault("chaos_real_time", time.time)
    then, time.time = time.time, lambda: real() + seconds
    for module in [module for module in sys.modules.values() if vars(module).get("time") is then]:
        module.time = time.time  # type: ignore[attr-defined]  # as it was imported by name


# -- heartbeats ------------------------------------------------------------------------------


def tamper(bed: Bed, how: str) -> None:
    """Something happens to heartbeats on their way."""
    seconds = bed.rng.uniform(2, 6)
    if how == "damaged":  # three in a row, and a worker is measured no more
        bed.disturbed |= set(bed.workers())
    bed.client.run_on_scheduler(_tamper, how=how, seconds=seconds, seed=bed.rng.random())
    time.sleep(seconds)


def _tamper(dask_scheduler: Any, how: str, seconds: float, seed: float) -> None:
    rng, until = random.Random(seed), time.monotonic() + seconds
    honest = dask_scheduler.handlers["heartbeat_worker"]
    kept: dict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=4))

    def heartbeat_worker(**message: Any) -> Any:
        metrics = dict(message["metrics"])
        if time.monotonic() < until and METRIC in metrics:
            known = kept[message["address"]]
            known.append(metrics[METRIC])
            at = {"late": 0, "repeated": max(0, len(known) - 2), "out of order": rng.randrange(len(known))}.get(how, -1)
            metrics[METRIC] = copy.deepcopy(known[at])
            if how == "damaged" and rng.random() < 0.4:
                metrics[METRIC] = damage(metrics[METRIC], rng)
            elif how == "lost" and rng.random() < 0.4:
                del metrics[METRIC]
            elif how == "lost" and rng.random() < 0.6:
                return {"status": "OK", "time": time.time(), "heartbeat-interval": 0.5}
        return honest(**{**message, "metrics": metrics})

    dask_scheduler.handlers["heartbeat_worker"] = heartbeat_worker


JUNK = [None, "", "x", -1, 0, 1.5, float("nan"), 2**70, [], {}, [[]], b"x", True]


def damage(payload: Any, rng: random.Random) -> Any:
    """A payload of which something is not as it was sent."""
    if not isinstance(payload, dict) or rng.random() < 0.1:
        return rng.choice(JUNK)
    payload = copy.deepcopy(payload)
    key = rng.choice([*payload])
    old = payload[key]
    if isinstance(old, list) and old and rng.random() < 0.6:
        i = rng.randrange(len(old))
        old[i] = old[i] + rng.choice([-1, 1, 10**9]) if type(old[i]) is int else rng.choice(JUNK)
    elif rng.random() < 0.3:
        del payload[key]
    else:
        payload[key] = rng.choice(JUNK)
    return payload


# -- disks, and failures of ours ---------------------------------------------------------------


def fill_disk(bed: Bed) -> None:
    """The disk of the workers is full for a while, under spilled results and under shuffles."""
    if not bed.small:
        print("    skipped: only root can mount a small disk")
        return
    with (bed.disk / "full").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(2**20)) == 2**20:
            pass
    time.sleep(bed.rng.uniform(2, 5))
    (bed.disk / "full").unlink()


def boom(*args: Any, **kwargs: Any) -> Any:
    raise ValueError(INJECTED)


def break_worker(bed: Bed, whole: bool) -> None:
    """Something of a worker's meter raises: it measures no more, and says why; or a part, and the rest goes on."""
    name, address, _ = bed.victim()
    if whole:
        bed.disturbed.add(name)
    bed.on(address, _break_worker, what=bed.rng.choice(["_take", "reserve", "balance", "finalize_many"]) * whole)


def _break_worker(dask_worker: Any, what: str) -> None:
    meter = getattr(dask_worker.plugins.get(WORKER_PLUGIN), "meter", None)
    if meter is None:
        return
    if what:
        setattr(meter.hooks if what == "_take" else meter._ledger, what, boom)
    else:
        meter._process.read = meter._metered.sample = meter._process_metrics.counter.add = boom


def break_part(bed: Bed) -> None:
    """A part of the scheduler's meter raises: it alone is called no more, and reports name it."""
    name = bed.rng.choice([name.removeprefix("scheduler/") for name in OFFERED if name.startswith("scheduler/")])
    bed.client.run_on_scheduler(_break_part, name=name)
    with efficiency_report(client=bed.client) as report:
        eventually(lambda: bed.client.run_on_scheduler(_failures), "a part that failed")
    assert report.notes.count(f"the part {name!r} failed: ValueError: {INJECTED}") == 1, report.notes
    unregister_and_register(bed)


def _break_part(dask_scheduler: Any, name: str) -> None:
    parts = dask_scheduler.plugins[PLUGIN]._meter.parts
    part = parts.get(name)
    hooks = ("event", "worker_joined", "take_heartbeat", "round_over", "graph_taken_in")
    part.__class__ = type("Broken", (type(part),), dict.fromkeys(hooks, boom))
    parts._called.clear()


def _failures(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.plugins[PLUGIN]._meter.parts.failures())


# -- registrations and schedulers --------------------------------------------------------------


def unregister_and_register(bed: Bed) -> None:
    """The plugin is taken off, and comes again."""
    unregister(bed.client)
    time.sleep(bed.rng.uniform(0, 2))
    bed.register()


def record(bed: Bed) -> None:
    with efficiency_report(client=bed.client, trace=True) as report:
        assert total(bed, abs, range(40)) == 780
    assert report.trace is not None, report.notes
    assert (report.trace.runs.outcome == RunOutcome.SUCCEEDED).sum() >= 41


def two_versions(bed: Bed) -> None:
    """A worker has another version of the package: it is not measured, and says so."""
    name, address, _ = bed.victim()
    bed.disturbed.add(name)
    bed.on(address, _set_version)
    bed.register(max_prefixes=bed.rng.randrange(20, 900))

    def is_refused(dask_scheduler: Any) -> bool:
        reasons = dask_scheduler.plugins[PLUGIN]._meter.accounts.cluster.reasons
        return address not in dask_scheduler.workers or "0.0.0 is installed" in reasons.get(name, "")

    eventually(lambda: bed.client.run_on_scheduler(is_refused), "a worker's other version")


def _set_version() -> None:
    from dask_efficiency.plugin import version

    version.__version__ = "0.0.0"


def end_scheduler(bed: Bed, kill: bool) -> None:
    """The scheduler is killed with all that it has, or closes, and writes a report if there is room; another comes."""
    full = bed.small and bed.rng.random() < 0.5
    file = (bed.tiny if full else bed.folder) / "life.json"
    if not kill:
        bed.register(save_to=str(file))
    bed.stop(kill=kill)
    assert not [*bed.tiny.iterdir()], "a part of a report that could not be written stays"
    if not kill and not full:
        assert load_report(str(file)).breakdown.total > 0
        file.unlink()
    bed.start()
    eventually(lambda: bed.client.status == "running", "the client's connection")
    bed.register()


#: What can happen, by name.
EVENTS: Mapping[str, Callable[[Bed], Any]] = {
    "kill": lambda bed: os.kill(bed.victim()[2], signal.SIGKILL),
    "out of memory": out_of_memory,
    "stop and continue": stop_and_continue,
    "restart by nanny": lambda bed: bed.client.restart_workers([bed.victim()[1]], 120, raise_for_error=False),
    "retire": lambda bed: bed.client.retire_workers([bed.victim()[1]], close_workers=True),
    "scale to zero": partial(scale, n=0),
    "scale up": partial(scale, n=WORKERS + 1),
    "block a worker's loop": lambda bed: bed.on(bed.victim()[1], block_loop, seconds=bed.rng.uniform(1, 5)),
    "block the scheduler's loop": lambda bed: bed.client.run_on_scheduler(block_loop, seconds=bed.rng.uniform(1, 5)),
    "step a clock": step_clock,
    **{
        f"heartbeats {how}": partial(tamper, how=how) for how in ("lost", "late", "repeated", "out of order", "damaged")
    },
    "fill the disk": fill_disk,
    "break a worker's meter": partial(break_worker, whole=True),
    "break a worker's part": partial(break_worker, whole=False),
    "break a scheduler's part": break_part,
    "register again": lambda bed: bed.register(
        max_prefixes=bed.rng.choice([10, 1_000]), sensors=bed.rng.random() < 0.5
    ),
    "unregister and register": unregister_and_register,
    "record": record,
    "two versions": two_versions,
    "kill the scheduler": partial(end_scheduler, kill=True),
    "close the scheduler": partial(end_scheduler, kill=False),
}

#: With these a report's window ends.
ENDS_WINDOWS = {"break a scheduler's part", "unregister and register", "kill the scheduler", "close the scheduler"}
