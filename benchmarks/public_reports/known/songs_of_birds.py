"""A trained network names the birds in short pieces of recordings.

source: scikit-hep/coffea pull request 798
date:   2023-06-06
seen:   a wrapper of a network for use in Dask loads the whole model in every chunk of data, which a reviewer found very
        wasteful where there are many chunks.
cause:  the function of each task builds the network and reads its weights, before it applies it to few data.
cure:   load it once in each process, and keep it there.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from distributed import Client
from torch import nn

from benchmarks.public_reports.programs import LOCK, MORE_MEMORY, TWO_BY_ONE, Expected, folder, marked, scaled

NEEDS = ("torch",)
CLUSTER = TWO_BY_ONE
PIECES = scaled(380)
BANDS, WIDTH, BIRDS = 256, 1500, 60

EXPECTED = Expected(
    cause="each task builds and loads the model again, though it is the same in all of them",
    place="network() in the task's function birds_in, or load() within",
    cure="load the model once in each worker process, and keep it (a cache), or pass it to the tasks",
    says=r"(again|same|repeat\w*|anew)\b[^.]{0,80}(tasks?|calls?|times|load|read|file)|(load|read|buil|open|mak"
    r"|set)\w*[^.]{0,60}(again|(in|by|for) (each|every|all))"
    r"|(each|every) (task|call)[^.]{0,60}(load|read|buil|open|set)|torch\.load",
    places=(
        *marked(__file__),
        r"\bnetwork\b",
        r"\bbirds_in\b",
        r"\bload\b",
        r"kaiming|reset_parameters|load_state_dict",
    ),
    cures=r"once|cache|keep|reuse|scatter|(in|per|for) (each|every) (worker|process)|worker plugin|setup",
    never={
        LOCK: "nobody waits for a lock of the program",
        MORE_MEMORY: "memory is not short",
    },
)


def weights() -> Path:
    return folder("songs_of_birds") / "weights.pt"


def empty_network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(BANDS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, BIRDS)
    )


def prepare() -> None:
    """Write a network's weights."""
    torch.manual_seed(3)
    torch.save(empty_network().state_dict(), weights())


def network(path: Path) -> nn.Module:
    """The trained network."""
    names = empty_network()  # <- here
    names.load_state_dict(torch.load(path, weights_only=True))  # <- here
    return names.eval()


network_kept = lru_cache(network)


def spectrum(piece: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(piece).random((40, BANDS), dtype="f4"))


def birds_in(piece: int, path: Path) -> float:
    """How sure the network is of the birds in a piece."""
    names = network(path)  # <- here
    with torch.no_grad():
        return float(names(spectrum(piece)).softmax(1).max(1).values.mean())


def birds_heard(piece: int, path: Path) -> float:
    names = network_kept(path)
    with torch.no_grad():
        return float(names(spectrum(piece)).softmax(1).max(1).values.mean())


def bad(client: Client) -> float:
    return sum(client.gather(client.map(birds_in, range(PIECES), path=weights())))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(birds_heard, range(PIECES), path=weights())))
