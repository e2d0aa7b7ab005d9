from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dask_efficiency.critical_paths.torch.verdict import CAUSES, Straggler, verdict

GRAPHS = "CUDA graphs or torch.compile"


@pytest.mark.parametrize(
    ("kinds", "names", "more", "said"),
    [
        (
            {"compute-cpu": 3.0, "gpu-compute": 1.0},
            {"aten::add": 0.4},
            {},
            "75 % of it on the CPU, which did not wait for the GPU: ",
        ),
        ({"compute-cpu": 4.0}, {"aten::add": 0.4}, {}, f"{GRAPHS}, 'aten::add' first (10 % of the window)"),
        ({"compute-cpu": 4.0}, {"aten::add": 0.1}, {}, GRAPHS),
        (
            {"compute-cpu": 4.0},
            {"-": 3.0, "aten::add": 1.0},
            {},
            "less Python, as 75 % of the window is between operators",
        ),
        (
            {"compute-cpu": 4.0},
            {"aten::add": 1.0},
            {"has_gpu": False},
            "100 % of it on the CPU: what helps most is faster",
        ),
        ({"compute-cpu": 4.0}, {"cudaStreamIsCapturing": 3.0}, {}, "to look at a later step, as the first calls"),
        ({"compute-cpu": 4.0}, {"cudaLaunchKernel": 3.0}, {}, f"{GRAPHS}, 'cudaLaunchKernel' first"),
        (
            {"compute-noncpu": 4.0},
            {"cudaMalloc": 4.0},
            {},
            "in calls that manage memory: what helps most is memory that",
        ),
        (
            {"gpu-compute": 4.0},
            {"gemm": 4.0},
            {},
            "computing on the GPU: what helps most is faster kernels, 'gemm' first",
        ),
        ({"gpu-communication": 4.0}, {"nccl": 4.0}, {}, "in collectives: what helps most is less to exchange"),
        (
            {"kernel-launch": 2.0, "kernel-gap": 1.0, "gpu-compute": 1.0},
            {},
            {},
            "75 % of it between kernels, with the GPU idle",
        ),
        ({"gpu-sync": 4.0}, {}, {}, "waiting for a GPU that had nothing to do: what helps most is fewer calls"),
        ({"data-loading": 4.0}, {}, {}, "loading data: what helps most is more workers of the data loader"),
        ({"unattributed": 3.0, "compute-cpu": 1.0}, {}, {}, "75 % of it cannot be explained from what was recorded"),
    ],
)
def test_a_sentence_says_what_took_most_and_what_helps(
    kinds: Mapping[str, float], names: Mapping[str, float], more: dict[str, Any], said: str
) -> None:
    found = verdict(window=4.0, kinds=kinds, names=dict.fromkeys(CAUSES, names), **more)
    assert found.startswith("The window is 4 s, ")
    assert said in found
    assert not found.endswith(".")


def test_a_rank_that_others_wait_for_is_named_if_that_is_worth_it() -> None:
    late = Straggler(3, "it loaded data for longer", 0.25, 0.5)
    found = verdict(window=0.5, kinds={"compute-cpu": 0.5}, names={}, straggler=late)
    assert "and rank 3 kept the others waiting for 500 ms, 25 % of their time (it loaded data for longer): " in found
    hardly = Straggler(3, "it loaded data for longer", 0.001, 0.002)
    assert "rank 3" not in verdict(window=0.5, kinds={"compute-cpu": 0.5}, names={}, straggler=hardly)


def test_nothing_is_said_of_no_time() -> None:
    assert verdict(window=0.0, kinds={}, names={}) == "Nothing took any time"


def test_a_long_name_is_cut() -> None:
    names = {"computing on the GPU": {"k" * 500: 1.0}}
    assert len(verdict(window=1.0, kinds={"gpu-compute": 1.0}, names=names)) < 250
