"""Instructions that Dask spends on calling a plugin's hook for a transition of a task, by the form of the hook.

``python -m benchmarks.hook_cost`` drives upstream's own loops over plugins, ``SchedulerState._transition`` with a
transition that does nothing and ``WorkerState._notify_plugins``, with hooks that do nothing, under valgrind's
cachegrind. Two numbers of calls are subtracted, so that the figures repeat to some ten instructions.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin
from distributed.scheduler import SchedulerState
from distributed.worker_state_machine import WorkerState

from benchmarks.figures import figure

#: Calls that are subtracted from one another.
SIZES = (1_000, 11_000)

#: What the scheduler passes on with a task's result; nothing with its other transitions.
RESULT = dict.fromkeys(("worker", "nbytes", "typename", "type", "startstops", "metadata", "thread", "run_id"))


class _Base(SchedulerPlugin):
    """Has the hook of the base class."""


class _Method(SchedulerPlugin):
    def transition(self, key: Any, start: Any, finish: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


class _WorkerBase(WorkerPlugin):
    """Has the hook of the base class."""


class _WorkerMethod(WorkerPlugin):
    def transition(self, key: Any, start: Any, finish: Any, **kwargs: Any) -> None:
        """Nothing."""


class _NoHook:
    """Has no hook at all."""


class _Hooks:
    """Hooks that are put on an instance."""

    def keywords(self, key: Any, start: Any, finish: Any, **kwargs: Any) -> None:
        """Nothing."""

    def named(self, key: Any, start: Any, finish: Any, stimulus_id: str = "", worker: str = "", **kwargs: Any) -> None:
        """Nothing."""

    def positional(self, key: Any, start: Any, finish: Any) -> None:
        """Nothing."""


def _on(plugin: Any, hook: Callable[..., None]) -> Any:
    plugin.transition = hook
    return plugin


def _named(key: Any, start: Any, finish: Any, stimulus_id: str = "", worker: str = "", **kwargs: Any) -> None:
    """Nothing."""


def _slashed(key: Any, start: Any, finish: Any, /, stimulus_id: str = "", worker: str = "", **kwargs: Any) -> None:
    """Nothing."""


def _slashed_keywords(key: Any, start: Any, finish: Any, /, **kwargs: Any) -> None:
    """Nothing."""


def _anything(*args: Any, **kwargs: Any) -> None:
    """Nothing."""


#: Plugins beside a first one as upstream's own for shuffles, which on the scheduler has a hook and on a worker that of
#: the base class.
SCHEDULER: dict[str, Callable[[], list[Any]]] = {
    "no other plugin": list,
    "the base class's hook": lambda: [_Base()],
    "a method": lambda: [_Method()],
    "a bound method on the instance": lambda: [_on(_Base(), _Hooks().keywords)],
    "the same, with names for what it uses": lambda: [_on(_Base(), _Hooks().named)],
    "a function on the instance, with names": lambda: [_on(_Base(), _named)],
    "the same, with `/` after the first three": lambda: [_on(_Base(), _slashed)],
    "the same, with `/`, and `**kwargs` only": lambda: [_on(_Base(), _slashed_keywords)],
    "a function of `*args, **kwargs`": lambda: [_on(_Base(), _anything)],
    "a function in C that does nothing": lambda: [_on(_Base(), "".format)],
}
WORKER: dict[str, Callable[[], list[Any]]] = {
    "no other plugin": list,
    "no hook at all": lambda: [_NoHook()],
    "the base class's hook": lambda: [_WorkerBase()],
    "a method": lambda: [_WorkerMethod()],
    "a bound method on the instance": lambda: [_on(_WorkerBase(), _Hooks().keywords)],
    "the same, without `**kwargs`": lambda: [_on(_WorkerBase(), _Hooks().positional)],
    "a function on the instance, without": lambda: [_on(_WorkerBase(), lambda key, start, finish: None)],
    "a function in C that does nothing": lambda: [_on(_WorkerBase(), "".format)],
}

SIDES = {"worker": WORKER, "scheduler": SCHEDULER, "scheduler, with a result": SCHEDULER}


def drive_scheduler(plugins: list[Any], calls: int, passed: Mapping[str, Any]) -> None:
    """Run transitions that do nothing through the scheduler's own function."""
    group = SimpleNamespace(name="group")
    ts = SimpleNamespace(key="key", _state="waiting", state="waiting", dependents={1}, dependencies={2}, group=group)
    state: Any = SimpleNamespace(
        tasks={"key": ts},
        transition_counter=0,
        transition_counter_max=False,
        plugins=dict(enumerate([_Method(), *plugins])),
        _TRANSITIONS_TABLE={("waiting", "processing"): lambda self, key, stimulus_id, **kwargs: ({}, {}, {})},
        transition_log=deque(maxlen=100),
        validate=False,
        task_groups={},
    )
    for _ in range(calls):
        SchedulerState._transition(state, "key", "processing", "stimulus", **passed)


def drive_worker(plugins: list[Any], calls: int) -> None:
    state: Any = SimpleNamespace(plugins=dict(enumerate([_WorkerBase(), *plugins])))
    for _ in range(calls):
        WorkerState._notify_plugins(state, "transition", "key", "waiting", "ready")


def drive(side: str, name: str, calls: int) -> None:
    if side == "worker":
        drive_worker(WORKER[name](), calls)
    else:
        drive_scheduler(SCHEDULER[name](), calls, RESULT if side == "scheduler, with a result" else {})


def fork_all() -> None:
    """Under cachegrind: drive each form in two processes of its own, which have what was imported in common."""
    for side, forms in SIDES.items():
        for name in forms:
            for calls in SIZES:
                child = os.fork()
                if not child:
                    drive(side, name, calls)
                    os._exit(0)
                os.waitpid(child, 0)
                print("FORKED", child)


def instructions() -> list[int]:
    """Instructions of the processes of :func:`fork_all`, in their order."""
    with tempfile.TemporaryDirectory() as directory:
        command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={directory}/%p"]
        command += [sys.executable, "-u", "-m", "benchmarks.hook_cost", "--fork"]
        environment = os.environ | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        children = re.findall(r"^FORKED (\d+)$", done.stdout, re.MULTILINE)
        written = [Path(directory, child).read_text(errors="replace") for child in children]
        return [int(text.rpartition("summary: ")[2].split()[0]) for text in written]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fork", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().fork:
        fork_all()
        return
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: it counts the instructions")
    counted = iter(instructions())
    found: dict[str, list[float]] = {}
    for side, forms in SIDES.items():
        print(f"-- {side}")
        base = 0.0
        for name in forms:
            few, many = next(counted), next(counted)
            each = (many - few) / (SIZES[1] - SIZES[0])
            base = base or each
            found.setdefault(side, []).append(round(each - base))
            print(f"{each:8.0f} instructions a transition {each - base:+8.0f}  {name}")
    for side, added in found.items():
        figure(f"added by a hook on the {side}", sorted(added[1:]), "instructions")


if __name__ == "__main__":
    main()
