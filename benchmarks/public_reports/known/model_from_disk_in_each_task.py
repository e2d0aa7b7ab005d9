"""Each task of an inference reads the model from disk.

source: borglab/gtsfm issue 110
date:   2021-03-10
seen:   models kept as attributes of the mapped object locked the scheduler up, so each call now reads the model from
        disk: it works, and is slow.
cause:  reading takes many times longer than using, and is done by every task, for the same file.
cure:   read it once for each worker, and keep it there.
"""

from __future__ import annotations

import pickle
from functools import lru_cache
from pathlib import Path

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
IMAGES = scaled(36)
WORDS = 400_000

EXPECTED = Expected(
    cause="every task reads and unpickles the same model",
    place="the load() of the model, or the function that calls it",
    cure="read it once for each worker, or in one task that the others depend on",
    says=r"\b(re)?(read|load|open)(s|ing)?\b|unpickl|deserializ|pickle|same (file|work|data|input)|again|repeated"
    r"|each task|every task",
    places=(*marked(__file__), function("load_model"), function("matches")),
    cures=r"\bonce\b|cache|as an argument|keep (it|the)|scatter|lru_cache|task of its own|reuse|share",
    never={
        LONGER_TASKS: "tasks take tenths of a second, and longer ones would only hide it",
        MORE_WORKERS: "both cores are busy",
        SLEEP: "nothing sleeps",
    },
)


def path() -> Path:
    return folder("model") / "vocabulary.pickle"


def prepare() -> None:
    rng = np.random.default_rng(11)
    weights = rng.normal(size=WORDS).round(3).tolist()
    path().write_bytes(pickle.dumps({f"visual-word-{i:08d}": weight for i, weight in enumerate(weights)}))


def load_model(file: Path) -> dict[str, float]:
    return pickle.loads(file.read_bytes())  # <- here


kept_model = lru_cache(load_model)


def matches_with(model: dict[str, float], image: int) -> float:
    first = image * 997 % WORDS
    return sum(model[f"visual-word-{i % WORDS:08d}"] for i in range(first, first + 20_000))


def matches(file: Path, image: int) -> float:
    return matches_with(load_model(file), image)  # <- here


def matches_with_kept(file: Path, image: int) -> float:
    return matches_with(kept_model(file), image)


def bad(client: Client) -> float:
    futures = [client.submit(matches, path(), image) for image in range(IMAGES)]  # <- here
    return round(sum(client.gather(futures)), 6)


def good(client: Client) -> float:
    futures = [client.submit(matches_with_kept, path(), image) for image in range(IMAGES)]
    return round(sum(client.gather(futures)), 6)
