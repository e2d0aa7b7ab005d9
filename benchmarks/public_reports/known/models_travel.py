"""Models are made on one worker, and pickled to the other.

source: dask/dask-ml issue 281 (also dask/dask-examples issue 35)
date:   2018-07-04
seen:   prediction with a pretrained model, made by one task that all others take as an argument, needs 2 to 3 minutes;
        20 s if each worker makes the model. Logs say that the worker's event loop was unresponsive for 41 s.
cause:  a model is many small Python objects: pickling and unpickling it takes far longer than making it, holds the GIL,
        and happens in the event loop, as Dask takes the model for small (its sizeof knows nothing of it).
cure:   make the model once on each worker, and keep it there.
"""

from __future__ import annotations

from distributed import Client, get_worker

from benchmarks.public_reports.programs import LONGER_TASKS, TWO_BY_TWO, Expected, compute_for, function, marked, scaled

CLUSTER = TWO_BY_TWO
MODELS, VIDEOS = 4, scaled(16)
NODES = 250_000

EXPECTED = Expected(
    cause="results of Forest are pickled and unpickled on the workers' event loops, as they go to other workers",
    place="Forest, or the map() of the tasks that take it",
    cure="make the model once on each worker, and keep it there",
    says=r"pickl|serializ",
    places=(*marked(__file__), function("Forest"), function("predict")),
    cures=r"(each|every|per|their own|its own|same) worker|once a worker|where (it is|they are) (used|needed)"
    r"|keep (it|them)|(smaller|fewer) (results|objects)|arrays? instead",
    never={
        r"(?i)shuffle": "nothing is shuffled",
        LONGER_TASKS: "the tasks are long enough",
        r"look for tasks that hold the GIL": "the loops hold it themselves",
    },
)


class Node:
    """Node of a decision tree."""

    def __init__(self, feature: int, threshold: float, leaf: str) -> None:
        self.feature = feature
        self.threshold = threshold
        self.leaf = leaf


class Forest:
    """Nodes of decision trees."""

    def __init__(self, seed: int) -> None:
        self.nodes = [Node(i % 50, (i + seed) % 997 / 997, "cat" if i % 3 else "dog") for i in range(NODES)]


def predict(model: Forest, video: int) -> int:
    compute_for(0.04)
    return sum(node.leaf == "cat" for node in model.nodes[video : video + 1_000])


def predict_here(seed: int, video: int) -> int:
    """Make the model if this worker has none yet."""
    models = get_worker().__dict__.setdefault("models_of_this_program", {})
    if seed not in models:
        models[seed] = Forest(seed)
    return predict(models[seed], video)


def bad(client: Client) -> float:
    models = client.map(Forest, range(MODELS))  # <- here
    pairs = [(model, video) for video in range(VIDEOS) for model in models]
    futures = client.map(predict, *zip(*pairs, strict=True))  # <- here
    return sum(client.gather(futures))


def good(client: Client) -> float:
    pairs = [(seed, video) for video in range(VIDEOS) for seed in range(MODELS)]
    return sum(client.gather(client.map(predict_here, *zip(*pairs, strict=True))))
