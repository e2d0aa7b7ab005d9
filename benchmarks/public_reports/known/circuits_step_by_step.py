"""Circuits are fitted to a chip by trying swaps of places, step by step, each of which is rewarded.

source: QuTech-Delft/qgym issue 93; of the same kind: DLR-RM/stable-baselines3 issue 618
date:   2024-12-04 (issue 618: 2021-10-20)
seen:   most of a step's time is spent in copying the state of the environment, for a reward that may not need it.
cause:  a deep copy goes through the whole state in Python, object by object, to have the old state for one comparison.
cure:   keep only what the comparison needs (the cost before the step), and undo a step by swapping back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
CIRCUITS, STEPS, QUBITS, GATES = scaled(12), 2_000, 60, 240
State: TypeAlias = dict[str, Any]

EXPECTED = Expected(
    cause="each step makes a deep copy of the whole state, in Python, object by object, for one comparison of costs",
    place="the deepcopy in copying_step, called from fitted",
    cure="no copy: keep the cost before the step, and swap back; or a shallow copy of what changes",
    says=r"\b(copies|copied|copying)\b|\b(deep|full|whole|of the|of a|an?) copy\b|deepcopy\W+(\w+\W+){0,5}(slow"
    r"|costly|expensive|each|every|takes|again|most|longer|whole|in Python|recurs)",
    places=(*marked(__file__), function("copying_step"), function("fitted"), function("deepcopy")),
    cures=r"(no|not|without|avoid|less|fewer|instead of|do without|stop|skip|remove"
    r"|drop)\b.{0,30}cop(y|ies|ying)|shallow"
    r"|only what|copy (less|only|once)|in place|undo|swap back|\.copy\(\)|arrays?\b|immutable",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take seconds",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
        COMPUTED_AGAIN: "nothing is computed twice",
    },
)


def new_state(circuit: int) -> State:
    """Where each qubit is, and the gates, each between two qubits."""
    rng = np.random.default_rng(circuit)
    gates = [rng.choice(QUBITS, 2, replace=False).tolist() for _ in range(GATES)]
    return {
        "places": {qubit: [qubit // 8, qubit % 8] for qubit in range(QUBITS)},
        "gates": gates,
        "of qubit": {qubit: [gate for gate in gates if qubit in gate] for qubit in range(QUBITS)},
        "history": [{"step": number, "swap": [0, 0]} for number in range(50)],
    }


def cost(state: State) -> int:
    """Sum of the distances over all gates."""
    places = state["places"]
    total = 0
    for first, second in state["gates"]:
        here, there = places[first], places[second]
        total += abs(here[0] - there[0]) + abs(here[1] - there[1])
    return total


def swap(state: State, first: int, second: int) -> None:
    places = state["places"]
    places[first], places[second] = places[second], places[first]


def copying_step(state: State, first: int, second: int) -> State:
    """State after a swap if that is better, and the state before it if not."""
    before = copy.deepcopy(state)  # <- here
    swap(state, first, second)
    return state if cost(state) <= cost(before) else before


def comparing_step(state: State, first: int, second: int) -> State:
    before = cost(state)
    swap(state, first, second)
    if cost(state) > before:
        swap(state, first, second)
    return state


def fitted(circuit: int, step: Callable[[State, int, int], State]) -> int:
    """Cost of a circuit after all steps."""
    state = new_state(circuit)
    for first, second in np.random.default_rng(circuit).integers(0, QUBITS, (STEPS, 2)).tolist():
        state = step(state, first, second)  # <- here
    return cost(state)


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(fitted, range(CIRCUITS), step=copying_step))))


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(fitted, range(CIRCUITS), step=comparing_step))))
