"""Our graphs and longest paths of torch's traces are HTA's, or a test shows what HTA does wrong on that trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.critical_paths.torch.compared import differences, load
from tests.critical_paths.torch.hta import Answer, Question, ask
from tests.critical_paths.torch.random_traces import random_trace
from tests.critical_paths.torch.recorded import record_training, with_a_kernel

# HTA is started once, for all questions.
pytestmark = pytest.mark.xdist_group("hta")

DATA = Path(__file__).parents[2] / "data" / "kineto"
NEEDED = ("hta", "networkx", "pandas", "psutil", "yaml")
ALEX = "[param|pytorch.model.alex_net|0|0|0|measure|forward]"
#: Of the recorded traces, what is asked for besides the whole of it.
ANNOTATIONS: dict[str, tuple[str, int | tuple[int, int]]] = {
    "simple_add": (ALEX, 1),
    "alexnet": (ALEX, 1),
    "cuda_event_sync": ("ProfilerStep", 0),
}
RANDOM = 30


def questions_about_files() -> dict[str, Question]:
    found = {}
    for path in sorted(DATA.glob("*.json.gz")):
        name = path.name.removesuffix(".json.gz")
        found[name] = Question(str(path), overlay=True)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")
