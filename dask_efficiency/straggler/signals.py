"""The signals by which workers are compared: one table of what each is called, counted in, and varies by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What a signal is while a run goes on.

    Parameters
    ----------
    words
        What it is called for people.
    floor
        Spread of healthy workers that there always is.
    least_effect
        How much worse than its peers a worker must be.
    ratio
        Whether it is the logarithm of how many times as long something takes; else a difference of shares.
    """

    words: str
    floor: float
    least_effect: float
    ratio: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One signal.

    Parameters
    ----------
    floor
        Spread of healthy workers of a run that is over below which nobody is blamed, as a logarithm; of what was
        measured on FlowBench.
    words
        What it is called for people where a run is over: a multiple of what is usual.
    ratio
        Whether the level is the logarithm of how many times as long something takes.
    live
        The same while a run goes on; None where the signal is not measured then.
    """

    floor: float
    words: str
    ratio: bool = True
    live: Live | None = None


SIGNALS: Mapping[str, Signal] = {
    "duration": Signal(
        floor=0.03,
        words="time in the thread",
        live=Live(words="time for the same work", floor=0.03, least_effect=math.log(1.1), ratio=True),
    ),
    "cpu_share": Signal(
        floor=0.02,
        words="seconds for each CPU second",
        live=Live(words="share of it on the CPU", floor=0.02, least_effect=0.05),
    ),
    "receive": Signal(
        floor=0.05,
        words="receiving data, for each byte",
        live=Live(words="time to receive a byte", floor=0.10, least_effect=math.log(1.5), ratio=True),
    ),
    "send": Signal(
        floor=0.05,
        words="sending data, for each byte",
        live=Live(words="time to send a byte", floor=0.10, least_effect=math.log(1.5), ratio=True),
    ),
    "disk": Signal(
        floor=0.05,
        words="moving data to and from disk",
        live=Live(words="time on the disk", floor=0.10, least_effect=math.log(1.5), ratio=True),
    ),
    "memory": Signal(
        floor=0.05,
        words="time for each second not paused or spilling",
        live=Live(words="threads paused or spilling", floor=0.03, least_effect=0.1),
    ),
    "core_wait": Signal(
        floor=0.03,
        words="waiting for a core",
        ratio=False,
        live=Live(words="waiting for a core, beyond the peers", floor=0.03, least_effect=0.1),
    ),
    "beside_tasks": Signal(
        floor=0.03,
        words="CPU beside its tasks",
        ratio=False,
        live=Live(words="CPU beside its tasks, beyond the peers", floor=0.03, least_effect=0.1),
    ),
    "gpu_kernel": Signal(
        floor=0.03,
        words="time of the same GPU kernels",
        live=Live(words="time of the same GPU kernels", floor=0.03, least_effect=math.log(1.1), ratio=True),
    ),
    "non_cpu": Signal(floor=0.03, words="seconds off the CPU for each on it", ratio=False),
    "io_wait": Signal(floor=0.10, words="waiting for the disk", ratio=False),
    "blocked": Signal(floor=0.16, words="blocked, moving data included", ratio=False),
    "staging": Signal(floor=0.05, words="moving data, beside the usual"),
    "whole": Signal(floor=0.03, words="time of a task with its data"),
    "loop_lag": Signal(floor=0.15, words="turn of the event loop"),
    "paused": Signal(floor=0.05, words="time for each second not paused"),
}

#: Those that are measured while a run goes on, in the order of the arrays that hold them.
LIVE: Mapping[str, Live] = {name: signal.live for name, signal in SIGNALS.items() if signal.live is not None}
