"""Pairs and readings of workers whose speeds are made up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

from dask_efficiency.preflights.judge.links import MeasuredPair, MeasuredPairs
from dask_efficiency.preflights.judge.pairs import Pair, first_round, next_round
from dask_efficiency.preflights.judge.readings import Component, Reading, Subject

#: Seconds for a byte of a healthy worker.
BYTE = 1e-9


def all_rounds(
    hosts: Mapping[str, str], took: Callable[[Pair], float], seed: int = 0
) -> tuple[MeasuredPairs, list[list[Pair]]]:
    """The pairs of every round, and what they showed, where a pair takes so many times as long as it should."""
    random = Random(seed)
    rounds = [first_round(hosts, random)]
    measured: list[MeasuredPair] = []
    while True:
        measured += [link(pair, took(pair)) for pair in rounds[-1]]
        found = next_round(len(rounds), hosts, MeasuredPairs(measured, final=False), random)
        if not found:
            return MeasuredPairs(measured), rounds
        rounds.append(found)


def link(pair: Pair, times: float) -> MeasuredPair:
    seconds = {Component.SEND: BYTE * times, Component.RECEIVE: BYTE * times}
    return MeasuredPair(pair.first, pair.second, seconds if math.isfinite(times) else {})


def on_hosts_of_their_own(workers: int) -> dict[str, str]:
    return {f"w{i}": f"h{i}" for i in range(workers)}


def subject(name: str, *, group: str = "", host: str = "", share: float = 1.0, **rates: float) -> Subject:
    readings = {Component(component): Reading(value, share=share) for component, value in rates.items()}
    return Subject(name, name, host or f"h-{name}", group, readings)
