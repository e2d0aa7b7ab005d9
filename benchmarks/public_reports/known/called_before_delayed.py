"""Delayed is called on the results of a function, so that the function runs at once, in the client.

source: docs.dask.org, best practices of delayed ("Call delayed on the function, not the result")
date:   2019-02-01 (month of the page's first version), and as a question ever since
seen:   a loop with dask.delayed takes as long as the same loop without; building the list takes all of the time, the
        compute() at the end is done at once, and the workers have had nothing to do.
cause:  delayed(f(x)) calls f(x) first, in the client, one after the other; what is delayed is a finished number.
cure:   delayed(f)(x), so that each call is a task.
"""

from __future__ import annotations

import dask
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_WORKERS,
    PROCESSES,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SHOTS = scaled(240)
SIZE = 600

EXPECTED = Expected(
    cause="the work (coherence) is done by the client, one shot after the other, and not in tasks: the workers"
    " are idle",
    place="the line with delayed(coherence(shot)), or the function coherence, in the client",
    cure="delayed(coherence)(shot), or client.submit / client.map: call it as a task",
    says=r"\bclient\b|eager|at once|immediately|before (it|the task|dask|delayed|comput)|(not|no|without"
    r"|outside)\b.{0,30}"
    r"\btasks?\b|\bidle|nothing to (do|run)|without work|main (program|thread|process)|\bscript|your (own"
    r" )?(program|process)"
    r"|no work|serial(?!iz)|one after (the other|another)",
    places=(*marked(__file__), function("coherence"), function("bad")),
    cures=r"delayed\((\w+|f|func)\)\(|delay(ed)? (on )?the function|wrap\w* the function|submit|client\.map|as"
    r" (a )?tasks?"
    r"|in(to)? (a )?tasks?|(on|to|by) (the )?workers?|move\b|map_blocks|let (dask|workers)|with dask",
    never={
        MORE_WORKERS: "those that there are have nothing to do",
        PROCESSES: "those that there are have nothing to do",
        HOLDS_GIL: "it is not in the tasks",
        LONGER_TASKS: "there are no tasks worth the name",
        COMPUTED_AGAIN: "each is computed once",
        SLEEP: "nobody sleeps",
    },
)


def coherence(shot: int) -> float:
    """How much the traces of a shot are alike."""
    traces = np.random.default_rng(shot).normal(size=(SIZE, SIZE))
    spectra = np.fft.rfft2(traces)
    smooth = np.fft.irfft2(spectra * np.exp(-np.abs(spectra) / SIZE))
    return float(np.sort(smooth, axis=None)[:: SIZE // 10].sum() + np.abs(spectra).mean())


def bad(client: Client) -> float:
    parts = [dask.delayed(coherence(shot)) for shot in range(SHOTS)]  # <- here
    return dask.delayed(sum)(parts).compute()


def good(client: Client) -> float:
    parts = [dask.delayed(coherence)(shot) for shot in range(SHOTS)]
    return dask.delayed(sum)(parts).compute()
