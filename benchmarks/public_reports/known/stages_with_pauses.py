"""A pipeline of stages with short pauses between them runs on a cluster that scales itself.

source: esm-tools/pycmor issue 267 (of the same kind: dask/distributed issue 6880)
date:   2026-04-02 (6880: 2022-08-11)
seen:   a pipeline does many quick steps and then one heavy computation on a cluster in adaptive mode. Seeing little to
        do during the quick steps, the cluster gives its workers back, just before the heavy work arrives; workers
        vanish after half a minute of life, having done nothing, and new ones have to start.
cause:  adaptive scaling with a minimum of no workers and an eager scale-down: every pause of the client is taken for
        the end of the work, and each stage waits for the start of new workers.
cure:   a fixed number of workers; or a minimum, and a longer wait before workers are given up (interval, wait_count).

A worker process takes a second or more to start.
"""

from __future__ import annotations

import time

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, TWO_BY_ONE, Expected, compute_for, marked, scaled

CLUSTER = TWO_BY_ONE
STAGES, PIECES = scaled(6), 6
PAUSE = 0.8

EXPECTED = Expected(
    cause="the workers come and go: adaptive scaling with minimum=0 closes all workers in each short pause between the"
    " stages, so every stage first waits (tasks without workers) until new worker processes have started",
    place="client.cluster.adapt(minimum=0, ..., interval='100ms', wait_count=2) in bad()",
    cure="a fixed number of workers (scale(2)), or adapt with minimum=2 / a much longer interval and wait_count, so"
    " that"
    " a pause of a second does not end the workers",
    says=r"adapt|scal(e|es|ed|ing)\b|minimum"
    r"|(workers?|processes)\b.{0,60}\b(com(e|es|ing)|came|go|start|clos|left|leav|join|arriv|retir|stop|remov|vanish"
    r"|gone"
    r"|lost|missing|added|end(ed|s)?\b|new\b|few)"
    r"|\bno workers?|without (a |any )?workers?"
    r"|(start|starting|wait\w*|lack|absence|fewer|new|too few|lost) (\w+ ){0,3}workers?",
    places=(*marked(__file__), r"(?i)\badapt|\bcluster\b"),
    cures=r"fixed|scale\(|minimum|interval|wait_count|longer|keep|adapt|slower|later|number of workers",
    never={
        LONGER_TASKS: "the tasks are long enough",
        r"(?i)out of memory|\bcrashed\b": "they are closed on purpose",
        r"(?i)avoid the (sleep|pause)|(shorter|fewer) pauses": "the pauses are the smaller part",
        r"(?i)too few tasks": "there are three for each worker",
        r"(?i)scheduler is (slow|busy|overloaded)": "it waits for workers",
        r"(?i)(raise|increase|higher|larger) (the )?maximum": "two cores are two workers",
    },
)


def regrid(piece: int, field: float) -> float:
    compute_for(0.12)
    return float(np.sin(np.linspace(0.0, 1.0 + piece, 50_000)).sum()) + field % 7


def one_stage(client: Client, stage: int, field: float) -> float:
    pieces = client.map(regrid, [stage * PIECES + piece for piece in range(PIECES)], field=field)
    return sum(client.gather(pieces))


def pipeline(client: Client) -> float:
    field = 1.0
    for stage in range(STAGES):
        field = one_stage(client, stage, field)
        time.sleep(PAUSE)  # the client asks the archive for the next variable
    return field


def bad(client: Client) -> float:
    client.cluster.adapt(minimum=0, maximum=2, interval="100ms", wait_count=2)  # <- here
    return pipeline(client)


def good(client: Client) -> float:
    client.cluster.scale(2)
    return pipeline(client)
