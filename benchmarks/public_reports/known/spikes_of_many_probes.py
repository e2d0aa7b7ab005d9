"""Spikes found in recordings of brain probes by a small network, in a process that is held on one core.

source: rapidsai/dask-cuda issue 1381; of the same kind: rapidsai/dask-cuda issue 1358, pytorch/pytorch issue 101850
date:   2024-09-23 (issue 1358: 2024-07-19; pytorch: 2023-09-26)
seen:   work that uses many cores elsewhere is many times slower on workers of a cluster, though the machine is idle.
cause:  what starts the worker sets the affinity of its process to a core, from numbers of cores that are wrong for the
        machine: all threads of the process share that one core.
cure:   leave the affinity alone, or set it to all cores the worker is meant to have.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from distributed import Client, Worker, WorkerPlugin

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    PROCESSES,
    SLEEP,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("torch",)
#: One worker with one thread, as for a machine with one device; the network uses both cores.
CLUSTER: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1}
PROBES, CHANNELS, SAMPLES, LAYERS, CORES = scaled(12), 16, 20_000, 20, 2

EXPECTED = Expected(
    cause="the worker's process may run on one core only, as a plugin has set its affinity, and the threads of the"
    " network wait for each other there",
    place="sched_setaffinity in the plugin, or its registration; or the network that is slow by it",
    cure="do not pin the process, or pin it to as many cores as its threads need",
    says=r"affinit|pinn|\bpins?\b|taskset|cpuset|bound to|tied to|restricted to|held on|allowed on"
    r"|(one|single|a|same|1|fewer|only \w+) (cores?|cpus?)\b|(cores?|cpus?)\b.{0,40}(unused|idle|not used|free|nothing"
    r"|shared?)|wait\w* for a core",
    places=(*marked(__file__), function("find_spikes"), function("setup"), r"Pinned", r"conv1d|relu"),
    cures=r"affinit|unpin|\bpin|sched_set|taskset|(all|both|two|more|other|its own|own|free|every|as many) (the )?"
    r"(cores?|cpus?)",
    never={
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none",
        LONGER_TASKS: "tasks are long enough",
        MORE_MEMORY: "there is enough",
        PROCESSES: "another process would be held on the same core",
        SLEEP: "nothing sleeps",
    },
)


class Pinned(WorkerPlugin):
    """Hold a worker on the core that belongs to its device, by a table that is of another machine."""

    def setup(self, worker: Worker) -> None:
        core = min(os.sched_getaffinity(0))
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})  # <- here


def find_spikes(probe: int) -> float:
    torch.set_num_threads(CORES)
    rng = np.random.default_rng(probe)
    traces = torch.from_numpy(rng.standard_normal((1, CHANNELS, SAMPLES)).astype("float32"))
    weights = torch.from_numpy(rng.standard_normal((CHANNELS, CHANNELS, 9)).astype("float32") / 12.0)
    with torch.no_grad():
        for _ in range(LAYERS):
            traces = torch.relu(torch.nn.functional.conv1d(traces, weights, padding=4)) + 0.1  # <- here
            traces = traces / traces.mean()
    return float((traces > 2.0).sum())


def spikes(client: Client) -> float:
    return float(sum(client.gather(client.map(find_spikes, range(PROBES)))))


def bad(client: Client) -> float:
    client.register_plugin(Pinned())  # <- here
    return spikes(client)


def good(client: Client) -> float:
    return spikes(client)
