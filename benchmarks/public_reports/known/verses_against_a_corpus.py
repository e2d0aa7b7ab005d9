"""Verses are looked up in a corpus of old prints: each call of the delayed function gets the whole corpus.

source: dask/dask issue 1783
date:   2016-11-15
seen:   a function that gets a large XML text many times over is four times slower with Dask's processes than with a
        pool of multiprocessing, and slower than without any of them.
cause:  the text is part of each task and is serialized and sent with each; map of a pool sends a batch, in which pickle
        has it once.
cure:   bring the text to the workers once (scatter, or a task that reads it), or give a task many verses.
"""

from __future__ import annotations

import dask
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
VERSES = scaled(140)
LETTERS = 14_000_000

EXPECTED = Expected(
    cause="the corpus of 14 MB is an argument of each of the tasks, serialized and sent with every one of them",
    place="the call of the delayed function with the corpus, or the compute() that sends the tasks",
    cure="scatter the corpus, or load it in a task of its own, and pass that",
    says=r"pickl|seriali[sz]|large (graph|task|argument|object|input|value)|(graph|tasks?|arguments?|inputs?|corpus"
    r"|text|objects?)\b.{0,50}(large|big|heavy|MiB|MB|carr|travel|contain|embed|sent|send|ship|cop(y|ied))"
    r"|(sent|sends?|ship|carr(y|ies)|travel|transfer|embed|cop(y|ied))\w*.{0,40}(each|every|all|per) (task|call)"
    r"|(each|every|all|per) (task|call)s?\b.{0,50}(sent|send|carr|travel|contain|embed|cop(y|ied)|gets?)",
    places=(*marked(__file__), function("occurrences"), function("corpus")),
    cures=r"scatter|once\b|on the workers?|(load|read|make|build)\w* .{0,30}(in|by|on|inside|within) .{0,12}(task"
    r"|worker)|delayed\(|as (a )?(future|task)|persist|batch|several .{0,30}(per|a|each) task|fewer tasks"
    r"|by (path|name)",
    never={
        MORE_WORKERS: "they would get their tasks from the same scheduler",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
    },
)


def corpus() -> str:
    letters = np.random.default_rng(1783).integers(97, 123, LETTERS).astype(np.uint8)
    letters[:: 7 + LETTERS % 5] = 32
    return letters.tobytes().decode("ascii")


def occurrences(text: str, verse: int) -> int:
    """How often words like those of a verse are in a text."""
    start = (verse * 7919) % (len(text) - 100)
    word = text[start : start + 4].strip()
    return text.count(word, start, start + 2_000_000) + len(text)


def bad(client: Client) -> float:
    text = corpus()
    found = [dask.delayed(occurrences)(text, verse) for verse in range(VERSES)]  # <- here
    return float(sum(dask.compute(*found)))  # <- here


def good(client: Client) -> float:
    text = client.scatter(corpus(), broadcast=True)
    found = [dask.delayed(occurrences)(text, verse) for verse in range(VERSES)]
    return float(sum(dask.compute(*found)))
