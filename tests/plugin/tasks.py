"""What the tests' clusters run: tasks that read their own clocks and say what they read."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from distributed import Reschedule, get_worker, rejoin, secede, worker_client
from distributed.metrics import context_meter


class Stopwatch:
    """The wall time and the CPU time of this thread since it was made."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self._cpu = time.thread_time()

    def read(self) -> dict[str, float]:
        cpu, now = time.thread_time() - self._cpu, time.monotonic()
        return {"cpu": cpu, "wall": now - self.start, "start": self.start, "stop": now}


class Diary:
    """A file that tasks write to when nobody will see their result."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def write(self, **entry: Any) -> None:
        line = json.dumps(entry).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    def wait(self, event: str) -> None:
        """Until somebody has written of it; tests that fail leave no task behind."""
        until = time.monotonic() + 100
        while not self.read(event) and time.monotonic() < until:
            time.sleep(0.02)

    def read(self, event: str) -> list[dict[str, Any]]:
        if not os.path.exists(self.path):
            return []
        entries = [json.loads(line) for line in Path(self.path).read_text().splitlines()]
        return [entry for entry in entries if entry["event"] == event]


def burn(cpu_seconds: float) -> None:
    until = time.thread_time() + cpu_seconds
    while time.thread_time() < until:
        pass


def spin(cpu_seconds: float) -> dict[str, float]:
    watch = Stopwatch()
    burn(cpu_seconds)
    return watch.read()


def nap(seconds: float, *dependencies: Any) -> dict[str, float]:
    watch = Stopwatch()
    time.sleep(seconds)
    return watch.read()


def half_and_half(seconds: float) -> dict[str, float]:
    watch = Stopwatch()
    burn(seconds / 2)
    time.sleep(seconds / 2)
    return watch.read()


def spin_inside_a_meter(cpu_seconds: float, seconds: float) -> dict[str, float]:
    watch = Stopwatch()
    with context_meter.meter("my-io"):
        burn(cpu_seconds)
        time.sleep(seconds)
    return watch.read()


async def nap_in_a_coroutine(seconds: float) -> dict[str, float]:
    watch = Stopwatch()
    await asyncio.sleep(seconds)
    return watch.read()


def write_and_nap(diary: Diary, seconds: float, *dependencies: Any) -> dict[str, float]:
    """Says when it starts, sleeps, and says what it read, to whoever is left to hear it."""
    watch = Stopwatch()
    diary.write(event="start", **watch.read())
    time.sleep(seconds)
    diary.write(event="stop", **watch.read())
    return watch.read()


def wait_for_word(diary: Diary, *dependencies: Any) -> dict[str, float]:
    """Says when it starts, ends when the test says so, and says when that was."""
    watch = Stopwatch()
    diary.write(event="start", **watch.read())
    diary.wait("go")
    times = watch.read()
    diary.write(event="stop", **times)
    return times


def spin_until_word(diary: Diary) -> dict[str, float]:
    """The same, with CPU time in the meantime."""
    watch = Stopwatch()
    diary.write(event="start", **watch.read())
    while not diary.read("go") and watch.read()["wall"] < 100:
        burn(0.02)
    return watch.read()


def leave_the_pool_until_word(diary: Diary, before: float, spinning: float) -> dict[str, float]:
    """Spins before it secedes; spins outside, and waits for the test there."""
    watch = Stopwatch()
    burn(before)
    inside = watch.read()
    leave_the_slot()
    burn(spinning)
    diary.write(event="start", **watch.read())
    diary.wait("go")
    return inside


def fail_at_first(diary: Diary, failures: int) -> dict[str, float]:
    """Half spins and half sleeps; its first tries fail."""
    watch = Stopwatch()
    tries = len(diary.read("failure"))
    burn(0.1)
    time.sleep(0.1)
    if tries < failures:
        diary.write(event="failure", **watch.read())
        raise ArithmeticError(f"try {tries + 1} of {failures + 1}")
    return watch.read()


def fail() -> None:
    raise ArithmeticError("at once")


def reschedule_at_first(diary: Diary) -> dict[str, float]:
    watch = Stopwatch()
    time.sleep(0.2)
    if not diary.read("reschedule"):
        diary.write(event="reschedule", **watch.read())
        raise Reschedule
    return watch.read()


def leave_the_slot() -> None:
    """Secede, and wait until the event loop has heard of it, which is when the slot is free."""
    secede()
    let_the_loop_turn()


def let_the_loop_turn() -> None:
    """Wait until the worker's event loop has done what it was asked for so far."""
    turned = threading.Event()
    get_worker().loop.add_callback(turned.set)
    turned.wait()


def leave_the_pool(before: float, spinning: float, sleeping: float) -> dict[str, dict[str, float]]:
    """Spins before it secedes; spins and sleeps outside."""
    watch = Stopwatch()
    burn(before)
    inside = watch.read()
    leave_the_slot()
    outside = Stopwatch()
    burn(spinning)
    time.sleep(sleeping)
    return {"inside": inside, "outside": outside.read()}


def leave_and_return(before: float, outside: float, after: float) -> dict[str, dict[str, float]]:
    watch = Stopwatch()
    burn(before)
    inside = watch.read()
    leave_the_slot()
    second = Stopwatch()
    time.sleep(outside)
    rejoin()
    burn(after)
    return {"inside": inside, "outside": second.read()}


def ask_another_task(before: float, inner: float) -> dict[str, dict[str, float]]:
    watch = Stopwatch()
    burn(before)
    inside = watch.read()
    with worker_client() as client:
        let_the_loop_turn()
        outside = Stopwatch()
        other = client.submit(spin, inner, pure=False).result()
    return {"inside": inside, "outside": outside.read(), "inner": other}


def leave_and_fail(diary: Diary, before: float, sleeping: float) -> None:
    watch = Stopwatch()
    burn(before)
    diary.write(event="inside", **watch.read())
    leave_the_slot()
    watch = Stopwatch()
    time.sleep(sleeping)
    diary.write(event="outside", **watch.read())
    raise ArithmeticError("failed outside the pool")


class Tally:
    """An actor whose making and whose method take time of a known length."""

    def __init__(self, cpu_seconds: float) -> None:
        self.making = spin(cpu_seconds)

    def how_it_was_made(self) -> dict[str, float]:
        return self.making

    def work(self, seconds: float) -> dict[str, float]:
        return nap(seconds)


class SlowToSend:
    """A value that takes a while to serialise."""

    def __init__(self, seconds: float, diary: Diary) -> None:
        self.seconds, self.diary = seconds, diary

    def __reduce__(self) -> tuple[Any, ...]:
        watch = Stopwatch()
        time.sleep(self.seconds)
        self.diary.write(event="serialise", **watch.read())
        return SlowToSend, (self.seconds, self.diary)


def incompressible(nbytes: int, seed: int) -> Any:
    import numpy as np

    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype="u1")


def weigh(*arrays: Any) -> int:
    return sum(array.nbytes for array in arrays)


def increment(x: int, *dependencies: Any) -> int:
    return x + 1


def add_process_pool(dask_worker: Any) -> None:
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    pool.submit(os.getpid).result()
    dask_worker.executors["processes"] = pool


def remove_process_pool(dask_worker: Any) -> None:
    dask_worker.executors.pop("processes").shutdown()
