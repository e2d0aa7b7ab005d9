"""An economic model finds the roots of Python functions in tasks that run in several threads of one process.

source: PSLmodels/OG-USA pull request 102
date:   2024-04-21
seen:   a client without arguments on a workstation of 64 cores; the model needed twelve hours.
cause:  the default is a few processes with many threads. The tasks are plain Python, which runs in one thread of a
        process at a time; the others wait for the GIL.
cure:   threads_per_worker=1, with as many processes as cores: three hours.
"""

from __future__ import annotations

from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, TWO_BY_ONE, Expected, function, marked, scaled

CLUSTER = {"n_workers": 1, "threads_per_worker": 4}
GOOD_CLUSTER = TWO_BY_ONE
HOUSEHOLDS = scaled(300)
STEPS = 120

EXPECTED = Expected(
    cause="the tasks hold the GIL, so of the four threads of the one process only one runs at a time",
    place="excess or solve, which are plain Python",
    cure="more processes with one thread each (or code that releases the GIL)",
    says=r"\bGIL\b|interpreter lock|pure Python|plain Python|one thread at a time|threads? wait",
    places=(*marked(__file__), function("excess"), function("solve")),
    cures=r"process|threads_per_worker|nthreads|one thread|fewer threads|releas\w* the GIL|vectori|numba|compile|NumPy",
    never={
        LONGER_TASKS: "the tasks are long enough",
        r"(?im)(^|[.:;])\s*(add|use|start|try) (more |further )threads": "more threads would only wait as well",
        r"(?i)fewer (workers|processes)": "it takes more processes",
    },
)


def excess(price: float, household: int) -> float:
    """Demand less supply at a price."""
    demand = 0.0
    for good in range(1, 3000):
        demand += (household + good) / (price * good + 1.0)  # <- here
    return demand - 40.0 * price


def solve(household: int) -> float:
    """Price at which a market clears."""
    low, high = 0.0, 1e5
    for _ in range(STEPS):
        middle = (low + high) / 2
        if excess(middle, household) > 0:  # <- here
            low = middle
        else:
            high = middle
    return low


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(solve, range(HOUSEHOLDS)))))


good = bad
