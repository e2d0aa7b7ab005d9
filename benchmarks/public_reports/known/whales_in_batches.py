"""Calls of whales in recordings of hydrophones, found by a network that gets its windows in batches.

source: pytorch/pytorch issue 13918; the same in pytorch issues 30460 and 39842, awslabs/gluonts pull request 1732
date:   2018-11-13 (issue 30460: 2019-11-26; issue 39842: 2020-06-11; gluonts: 2021-10-14)
seen:   the making of a batch takes longer than the network that it is for; a warning says that it is slow.
cause:  a tensor made from a list of arrays is filled one number after the other, each by way of a Python object.
cure:   one array of them first (numpy.stack), and the tensor from that.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("torch",)
CLUSTER = TWO_BY_ONE
RECORDINGS, BATCHES, WINDOWS, SAMPLES = scaled(70), 4, 64, 12_000

EXPECTED = Expected(
    cause="torch.tensor of a list of arrays takes most of the time of calls_in: it converts number by number",
    place="torch.tensor in batch_of_list, or its caller",
    cure="numpy.stack (or numpy.array) the windows first, then from_numpy or as_tensor of the one array",
    says=r"\btensor\b|list of (numpy |np\.)?(nd)?arrays|one (number|value|element|by one)|number by number|element by"
    r"|each (number|value|element)|conver(t|sion)",
    places=(*marked(__file__), function("batch_of_list"), r"\btensor\b"),
    cures=r"stack|from_numpy|as_tensor|np\.array|numpy\.array|asarray|(one|single|contiguous) (numpy )?(nd)?array"
    r"|concatenate|array first",
    never={
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none",
        LONGER_TASKS: "tasks are long enough",
        MORE_MEMORY: "there is enough",
        SLEEP: "nothing sleeps",
    },
)


def windows_of(recording: int, batch: int) -> list[np.ndarray]:
    """Windows around the loudest moments of a part of a recording."""
    rng = np.random.default_rng((recording, batch))
    sound = rng.standard_normal(8 * SAMPLES).astype("float32")
    return [sound[start : start + SAMPLES] for start in rng.integers(0, 7 * SAMPLES, WINDOWS)]


def batch_of_list(windows: list[np.ndarray]) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.tensor(windows)  # <- here


def batch_of_array(windows: list[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack(windows))


def network(batch: torch.Tensor) -> float:
    kernel = torch.sin(torch.arange(64.0) / 3.0).reshape(1, 1, 64) / 64.0
    with torch.no_grad():
        loudness = torch.relu(torch.nn.functional.conv1d(batch[:, None, :], kernel, stride=16))
    return float(loudness.amax(dim=2).sum())


def calls_of_lists(recording: int) -> float:
    return sum(network(batch_of_list(windows_of(recording, batch))) for batch in range(BATCHES))  # <- here


def calls_of_arrays(recording: int) -> float:
    return sum(network(batch_of_array(windows_of(recording, batch))) for batch in range(BATCHES))


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(calls_of_lists, range(RECORDINGS)))))


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(calls_of_arrays, range(RECORDINGS)))))
