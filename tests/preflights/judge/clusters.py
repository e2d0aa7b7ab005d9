"""Pairs and readings of workers whose speeds are made up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

from dask_efficiency.preflights.judge.links import MeasuredPair, MeasuredPairs
from dask_efficiency.preflights.judge.pairs import Pair, everybody_if_slow, first_round, in_doubt, next_round
from dask_efficiency.preflights.judge.readings import Component, Reading, Subject

#: Seconds for a byte of a healthy worker.
BYTE = 1e-9


def all_rounds(
    hosts: Mapping[str, str], took: Callable[[Pair], float], seed: int = 0
) -> tuple[MeasuredPairs, list[list[list[Pair]]]]:
    """Measured pairs, and the rounds of the first look and of each after it; a pair takes so many times as long."""
    random, steps = Random(seed), []
    measured: list[MeasuredPair] = []
    steps.append(_rounds(hosts, took, random, measured, first_look=True))
    for choose in (in_doubt, everybody_if_slow):
        again = choose(hosts, MeasuredPairs(measured, final=False), random)
        if again:
            steps.append(_rounds(again, took, random, measured, first_look=False))
    confirmed = [Pair(*workers) for workers in MeasuredPairs(measured).to_confirm()]
    measured += [link(pair, took(pair), 3) for pair in confirmed]
    return MeasuredPairs(measured), steps


def _rounds(
    hosts: Mapping[str, str],
    took: Callable[[Pair], float],
    random: Random,
    measured: list[MeasuredPair],
    *,
    first_look: bool,
) -> list[list[Pair]]:
    rounds = [first_round(hosts, random)]
    while True:
        measured += [link(pair, took(pair), 1 if first_look else 3) for pair in rounds[-1]]
        links = MeasuredPairs(measured, final=False)
        found = next_round(len(rounds), hosts, links, random, first_look=first_look)
        if not found:
            return rounds
        rounds.append(found)


def link(pair: Pair, times: float, repeats: int = 1) -> MeasuredPair:
    seconds = {Component.SEND: BYTE * times, Component.RECEIVE: BYTE * times}
    return MeasuredPair(pair.first, pair.second, seconds if math.isfinite(times) else {}, repeats=repeats)


def on_hosts_of_their_own(workers: int) -> dict[str, str]:
    return {f"w{i}": f"h{i}" for i in range(workers)}


def subject(name: str, *, group: str = "", host: str = "", share: float = 1.0, **rates: float) -> Subject:
    readings = {Component(component): Reading(value, share=share) for component, value in rates.items()}
    return Subject(name, name, host or f"h-{name}", group, readings)
