"""What ``benchmarks/chaos.py`` does to a cluster: a table of events."""

from __future__ import annotations

import copy
import os
import random
import signal
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.chaos_bed import DISK, MEMORY, WORKERS, Bed, accounts_of, eventually
from dask_efficiency import efficiency_report, load_report, unregister
from dask_efficiency.plugin.names import METRIC, PLUGIN, WORKER_PLUGIN
from dask_efficiency.runs.trace.schema import Outcome

#: Of an exception that is put in.
INJECTED = "put in by chaos"


class Injected(Exception):
    """Put in."""


def boom(*args: Any, **kwargs: Any) -> Any:
    """Fail."""
    raise Injected(INJECTED)


# -- workers ---------------------------------------------------------------------------------------


def kill(bed: Bed) -> None:
    """A worker's process is killed."""
    os.kill(bed.victim()[2], signal.SIGKILL)


def swell(path: str) -> int:
    """Takes more memory than there is, the first time."""
    if not os.path.exists(path):
        Path(path).touch()
        taken = [os.urandom(2**20) for _ in range(MEMORY // 2**20)]
        time.sleep(60)
        return len(taken)
    return 1


def out_of_memory(bed: Bed) -> None:
    """A task takes more than its worker has; the nanny kills it."""
    path = str(bed.folder / f"swell-{bed.rng.random()}")
    assert bed.client.submit(swell, path, pure=False).result(120) == 1


def stop_and_continue(bed: Bed) -> None:
    """A worker's process stands still."""
    pid = bed.victim()[2]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(bed.rng.uniform(0.5, 6))
    os.kill(pid, signal.SIGCONT)


def restart_by_nanny(bed: Bed) -> None:
    """A worker is restarted by its nanny."""
    bed.client.restart_workers([bed.victim()[1]], timeout=120, raise_for_error=False)


def retire(bed: Bed) -> None:
    """A worker is retired, and another comes."""
    bed.client.retire_workers([bed.victim()[1]], close_workers=True)


def scale_to_zero(bed: Bed) -> None:
    """No worker is left for a while."""
    bed.scale(0)
    eventually(lambda: not bed.workers(), "no workers")
    time.sleep(bed.rng.uniform(0, 2))
    bed.scale(WORKERS)


def scale_up(bed: Bed) -> None:
    """More workers come, and go."""
    bed.scale(WORKERS + 2)
    eventually(lambda: len(bed.workers()) > WORKERS, "more workers")
    bed.scale(WORKERS)
    eventually(lambda: len(bed.workers()) <= WORKERS, "fewer workers")


def block_worker(bed: Bed) -> None:
    """A worker's event loop is blocked."""
    bed.on(bed.victim()[1], _block, seconds=bed.rng.uniform(1, 5))


def block_scheduler(bed: Bed) -> None:
    """So is the scheduler's."""
    bed.client.run_on_scheduler(_block, seconds=bed.rng.uniform(1, 5))


def _block(seconds: float) -> None:
    time.sleep(seconds)


def step_clock(bed: Bed) -> None:
    """A worker's clock of the day is set, and set back."""
    _, address, _ = bed.victim()
    for seconds in (bed.rng.choice([-86_400, -3_600, -5, 5, 3_600, 86_400]), 0):
        bed.on(address, _set_clock, seconds=seconds)
        time.sleep(bed.rng.uniform(0.5, 3))


def _set_clock(seconds: float) -> None:
    import sys

    real = vars(time).setdefault("chaos_real_time", time.time)
    set_ = real if not seconds else lambda: real() + seconds
    then, time.time = time.time, set_
    for module in list(sys.modules.values()):
        if vars(module).get("time") is then:  # as it was imported by name
            module.time = set_  # type: ignore[attr-defined]


# -- heartbeats ------------------------------------------------------------------------------------


def tamper(bed: Bed, how: str) -> None:
    """Something happens to all heartbeats on their way."""
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
        metrics = message["metrics"]
        if time.monotonic() < until and METRIC in metrics:
            payloads = kept[message["address"]]
            payloads.append(metrics[METRIC])
            if how == "lost" and rng.random() < 0.7:
                if rng.random() < 0.5:
                    return {"status": "OK", "time": time.time(), "heartbeat-interval": 0.5}
                metrics = {name: value for name, value in metrics.items() if name != METRIC}
            elif how in ("late", "repeated", "out of order"):
                i = {"late": 0, "repeated": max(0, len(payloads) - 2), "out of order": rng.randrange(len(payloads))}
                metrics = {**metrics, METRIC: copy.deepcopy(payloads[i[how]])}
            elif how == "damaged" and rng.random() < 0.4:
                metrics = {**metrics, METRIC: damage(metrics[METRIC], rng)}
        return honest(**{**message, "metrics": metrics})

    dask_scheduler.handlers["heartbeat_worker"] = heartbeat_worker


JUNK = [None, "", "x", -1, 0, 1.5, float("nan"), 2**70, [], {}, [[]], b"x", True]


def damage(payload: Any, rng: random.Random) -> Any:
    """A payload of which something is not as it was sent."""
    if not isinstance(payload, dict) or rng.random() < 0.1:
        return rng.choice(JUNK)
    payload = copy.deepcopy(payload)
    key = rng.choice([*payload])
    if rng.random() < 0.2:
        del payload[key]
    elif isinstance(payload[key], list) and payload[key] and rng.random() < 0.7:
        i = rng.randrange(len(payload[key]))
        old = payload[key][i]
        payload[key][i] = old + rng.choice([-1, 1, 10**9]) if type(old) is int else rng.choice(JUNK)
    else:
        payload[key] = rng.choice(JUNK)
    return payload


# -- disks -----------------------------------------------------------------------------------------


def fill_disk(bed: Bed, seconds: float | None = None) -> None:
    """The disk of the workers is full for a while: under spilled results, and under shuffles."""
    if not bed.small:
        print("    skipped: only root can mount a small disk", flush=True)
        return
    with (bed.disk / "full").open("wb", buffering=0) as file:
        try:
            for _ in range(DISK // 2**20):
                file.write(bytes(2**20))
        except OSError:
            pass
    time.sleep(bed.rng.uniform(2, 5) if seconds is None else seconds)
    (bed.disk / "full").unlink()


# -- our own failures ------------------------------------------------------------------------------


def break_meter(bed: Bed) -> None:
    """Something of a worker's meter raises: it measures no more, and says why."""
    name, address, _ = bed.victim()
    bed.disturbed.add(name)
    bed.on(address, _break_meter, what=bed.rng.choice(["hooks", "ledger", "heartbeat", "pending"]))


def _break_meter(dask_worker: Any, what: str) -> None:
    half = dask_worker.plugins.get(WORKER_PLUGIN)
    meter = None if half is None else half.meter
    if meter is not None:
        places = {"hooks": (meter.hooks, "_take"), "ledger": (meter._ledger, "reserve")}
        places |= {"heartbeat": (meter._ledger, "balance"), "pending": (meter._ledger, "finalize_many")}
        setattr(*places[what], boom)


def break_worker_part(bed: Bed) -> None:
    """A part of a worker's meter raises: nothing else stops."""
    bed.on(bed.victim()[1], _break_worker_part)


def _break_worker_part(dask_worker: Any) -> None:
    half = dask_worker.plugins.get(WORKER_PLUGIN)
    if half is not None and half.meter is not None:
        half.meter._sensors._new_host = half.meter._process.read = half.meter._metered.sample = boom
        half.meter._sensors._host = None


#: Hooks that are called when workers come and go and tasks run.
HOOKS = ("event", "worker_joined", "take_heartbeat", "round_over", "graph_taken_in")


def break_part(bed: Bed) -> None:
    """A part of the scheduler's meter raises: it alone is called no more, and reports name it."""
    name = bed.rng.choice(["recording", "metrics", "preflights", "held-results", "save-to"])
    bed.client.run_on_scheduler(_break_part, name=name)
    with efficiency_report(client=bed.client) as report:
        eventually(partial(bed.client.run_on_scheduler, _failures), "a part that failed")
    wanted = f"the part {name!r} failed: Injected: {INJECTED}"
    assert wanted in report.notes, report.notes
    unregister(bed.client)
    bed.register()


def _break_part(dask_scheduler: Any, name: str) -> None:
    parts = dask_scheduler.plugins[PLUGIN]._meter._parts
    part = type(parts.get(name))
    broken = type(part.__name__, (part,), dict.fromkeys(HOOKS, boom))
    parts.get(name).__class__ = broken
    parts._called.clear()


def _failures(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.plugins[PLUGIN]._meter._parts.failures())


# -- registrations ---------------------------------------------------------------------------------


def register_again(bed: Bed) -> None:
    """The plugin is registered again, with other options or the same."""
    bed.register(max_prefixes=bed.rng.choice([10, 1_000]), sensors=bed.rng.random() < 0.5)


def unregister_and_register(bed: Bed) -> None:
    """It is taken off, and comes again."""
    unregister(bed.client)
    time.sleep(bed.rng.uniform(0, 2))
    bed.register()


def record(bed: Bed) -> None:
    """A run is recorded under load."""
    with efficiency_report(client=bed.client, trace=True) as report:
        assert bed.client.submit(sum, bed.client.map(abs, range(40), pure=False), pure=False).result(120) == 780
    assert report.trace is not None, report.notes
    succeeded = int((report.trace.runs.outcome == Outcome.SUCCEEDED).sum())
    assert succeeded >= 41, succeeded


def two_versions(bed: Bed) -> None:
    """A worker has another version of the package: it is not measured, and says so."""
    name, address, _ = bed.victim()
    bed.disturbed.add(name)
    bed.on(address, _set_version)
    bed.register(max_prefixes=bed.rng.randrange(20, 900))

    def reason(dask_scheduler: Any, name: str) -> str:
        return str(accounts_of(dask_scheduler).cluster.reasons.get(name, ""))

    def told() -> bool:
        gone = bed.workers().get(name, ("",))[0] != address
        return gone or "0.0.0 is installed" in bed.client.run_on_scheduler(reason, name=name)

    eventually(told, "a worker's other version")


def _set_version() -> None:
    import dask_efficiency.plugin.version as version

    version.__version__ = "0.0.0"


# -- schedulers ------------------------------------------------------------------------------------


def kill_scheduler(bed: Bed) -> None:
    """The scheduler is killed with all that it has, and another comes."""
    bed.stop(kill=True)
    _begin_anew(bed)


def close_scheduler(bed: Bed) -> None:
    """It closes in order, and writes its report where there is room, or none."""
    full = bed.small and bed.rng.random() < 0.5
    file = (bed.tiny if full else bed.folder) / "life.json"
    bed.register(save_to=str(file))
    bed.stop()
    print(f"    the disk was {'full' if full else 'not full'}; its report is {'' if file.exists() else 'not '}there")
    assert [*bed.tiny.iterdir()] == [], "what was written is not whole, and stays"
    if not full:
        assert load_report(str(file)).breakdown.total > 0
        file.unlink()
    _begin_anew(bed)


def _begin_anew(bed: Bed) -> None:
    bed.start()
    eventually(lambda: bed.client.status == "running", "the client's connection")
    bed.register()


#: What can happen. Each comes once, in an order that is drawn, before any comes again.
EVENTS: Mapping[str, Callable[[Bed], None]] = {
    **{
        event.__name__.replace("_", " "): event
        for event in (
            kill,
            out_of_memory,
            stop_and_continue,
            restart_by_nanny,
            retire,
            scale_to_zero,
            scale_up,
            block_worker,
            block_scheduler,
            step_clock,
            fill_disk,
            break_meter,
            break_worker_part,
            break_part,
            register_again,
            unregister_and_register,
            record,
            two_versions,
            kill_scheduler,
            close_scheduler,
        )
    },
    **{f"heartbeats {how}": partial(tamper, how=how) for how in ("lost", "late", "repeated", "out of order", "damaged")},
}

#: With these a report's window ends.
ENDS_WINDOWS = {"break part", "unregister and register", "kill scheduler", "close scheduler"}
