"""Reactions of a mixture, of which one is a billion times as fast as another, are followed for many rates.

source: scipy/scipy issue 11274; of the same kind: scipy/scipy issues 9901 and 19841
date:   2019-12-27 (issue 9901: 2019-03-05; issue 19841: 2024-01-09)
seen:   solve_ivp does not come to an end for a well-known system of three equations, which odeint solves at once.
cause:  the default method (RK45) is an explicit one. For a stiff system its steps have to be as short as the fastest
        reaction, long after that is over: tens of thousands of steps, each with six calls of a Python function.
cure:   a method for stiff systems: BDF, Radau or LSODA.
"""

from __future__ import annotations

import numpy as np
from distributed import Client
from scipy.integrate import solve_ivp

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

NEEDS = ("scipy",)
CLUSTER = TWO_BY_ONE
MIXTURES, SECONDS = scaled(12), 26.0

EXPECTED = Expected(
    cause="the system is stiff, and the explicit method (RK45) needs tens of thousands of tiny steps, in each of which"
    " the rates are computed several times",
    place="the call of solve_ivp in product_of, with rates below it",
    cure="method='BDF', 'Radau' or 'LSODA'",
    says=r"stiff|explicit|(many|tiny|short|small|thousands of|\d{4,}|too many)\W+(\w+\W+){0,3}(steps|evaluations|calls"
    r"|iterations)|(called|evaluated|runs?)\W+(\w+\W+){0,4}(\d{4,}|thousands|many|often|so often|a million)|step sizes?"
    r"|(wrong|unsuited|default) (solver|method|integrator)",
    places=(*marked(__file__), function("product_of"), function("rates"), function("solve_ivp")),
    cures=r"\bBDF\b|Radau|LSODA|implicit|stiff|(other|different|another) (solver|method|integrator)|fewer (steps|calls"
    r"|evaluations)|larger steps|tolerance",
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


def rates(_: float, amounts: np.ndarray, slow: float) -> list[float]:
    """Change of the three amounts, of which the second is made slowly and used up at once."""
    first, second, third = amounts
    made = slow * first
    back = 1e4 * second * third
    used = 3e7 * second * second
    return [back - made, made - back - used, used]


def product_of(slow: float, method: str) -> float:
    """Amount of the product at the end."""
    solution = solve_ivp(  # <- here
        rates, (0.0, SECONDS), [1.0, 0.0, 0.0], method=method, args=(slow,), rtol=1e-7, atol=1e-11
    )
    return float(solution.y[2, -1])


def product_of_all(client: Client, method: str) -> float:
    slow_rates = np.linspace(0.03, 0.05, MIXTURES).tolist()
    return sum(client.gather(client.map(product_of, slow_rates, method=method)))


def bad(client: Client) -> float:
    return product_of_all(client, "RK45")  # <- here


def good(client: Client) -> float:
    return product_of_all(client, "BDF")
