"""Contrasts are computed from the activity of a brain, by a function whose results are kept on disk for the next time.

source: joblib/joblib issue 1370; of the same kind: joblib/joblib issues 683, 822 and 1195
date:   2022-12-02 (issue 683: 2018-05-19; issue 822: 2018-12-17; issue 1195: 2021-06-24)
seen:   calls of a cached function with large arrays take much longer than the function does, and a warning says that
        to store its arguments took seconds.
cause:  to look a call up, the cache makes a hash of all arguments, of every byte of the large array, at each call.
cure:   leave the array out of the key (ignore=) and name the subject instead; or do not cache what is that fast.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import joblib
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
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("joblib",)
CLUSTER = TWO_BY_ONE
SUBJECTS, SCANS, VOXELS, CONTRASTS = scaled(8), 120, 50_000, 36

EXPECTED = Expected(
    cause="the cache hashes the large array of a subject at each call, to find out whether it knows the result; that"
    " takes many times as long as the contrast itself",
    place="the call of the cached function in contrasts_in_full (memory.cache)",
    cure="ignore the array in the cache's key and give the subject's number instead, or do without the cache",
    says=r"\bhash(es|ed|ing)?\b|\bmd5|digest|(the|a|this) cache\b.{0,80}(arguments|look|key|slow|longer|cost|each call)"
    r"|(look\w*|key)\b.{0,40}\bcache|(arguments?|arrays?)\W+(\w+\W+){0,6}(pickled|hashed|looked up)"
    r"|memoi[sz]\w+.{0,60}(slow|longer|cost|arguments)",
    places=(*marked(__file__), function("contrasts_in_full")),
    cures=r"\bignore|(without|no|not|remove|drop|leave out|do without|skip|instead of)\b.{0,30}(the )?"
    r"(cach|memoi|hash|Memory)|smaller (arguments?|key)"
    r"|(name|number|path|identifier|id)\b.{0,30}(instead|as (the )?key)|hash\w* once"
    r"|(by|with) a (name|number|key)|fewer (calls|arguments)|cache (larger|longer|the whole|less)|hash less",
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


def activity_of(subject: int) -> np.ndarray:
    rng = np.random.default_rng(subject)
    return rng.random((SCANS, VOXELS))


def contrast(activity: np.ndarray, subject: int, weights: np.ndarray) -> float:
    """How far the weighted scans of a subject are from nothing."""
    return float(np.abs(weights @ activity).mean())


def weights_of(number: int) -> np.ndarray:
    weights = np.random.default_rng(number).normal(size=SCANS)
    return weights - weights.mean()


def contrasts_in_full(subject: int, place: str) -> float:
    cached = joblib.Memory(place, verbose=0).cache(contrast)
    activity = activity_of(subject)
    return sum(cached(activity, subject, weights_of(number)) for number in range(CONTRASTS))  # <- here


def contrasts_by_name(subject: int, place: str) -> float:
    cached = joblib.Memory(place, verbose=0).cache(contrast, ignore=["activity"])
    activity = activity_of(subject)
    return sum(cached(activity, subject, weights_of(number)) for number in range(CONTRASTS))


def new_place() -> str:
    """Folder of a cache that is empty yet."""
    return str(Path(tempfile.mkdtemp(dir=folder("contrasts_of_brain_maps"))))


def bad(client: Client) -> float:
    return sum(client.gather(client.map(contrasts_in_full, range(SUBJECTS), place=new_place())))


def good(client: Client) -> float:
    return sum(client.gather(client.map(contrasts_by_name, range(SUBJECTS), place=new_place())))
