from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from dask_efficiency.torch_traces.path.verdict import CAUSES, Begins, Straggler, headline, in_figures

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
    found = headline(window=4.0, kinds=kinds, names=dict.fromkeys(CAUSES, names), **more)
    assert found.startswith("The window is 4 s, ")
    assert said in found
    assert not found.endswith(".")


def test_a_rank_that_others_wait_for_is_named_if_that_is_worth_it() -> None:
    late = Straggler(3, "it loaded data for longer", 0.25, 0.5)
    found = headline(window=0.5, kinds={"compute-cpu": 0.5}, names={}, straggler=late)
    assert "and rank 3 kept the others waiting for 500 ms, 25 % of their time (it loaded data for longer): " in found
    hardly = Straggler(3, "it loaded data for longer", 0.001, 0.002)
    assert "rank 3" not in headline(window=0.5, kinds={"compute-cpu": 0.5}, names={}, straggler=hardly)


def test_nothing_is_said_of_no_time() -> None:
    assert headline(window=0.0, kinds={}, names={}) == "Nothing took any time"


def test_a_long_name_is_cut() -> None:
    names = {"computing on the GPU": {"k" * 500: 1.0}}
    assert len(headline(window=1.0, kinds={"gpu-compute": 1.0}, names=names)) < 250


@pytest.mark.parametrize(
    ("works", "said"),
    [
        (0.001, "which did not wait for the GPU (the GPU was idle for nearly all of that time): "),
        (0.5, "which did not wait for the GPU (the GPU was idle for 75 % of that time): what helps most is fewer and"),
        (1.8, "(the GPU worked for 90 % of that time): what helps most is a faster CPU and a faster GPU together"),
    ],
)
def test_it_is_said_what_the_gpu_did_while_the_cpu_took_the_time(works: float, said: str) -> None:
    assert said in headline(window=3.0, kinds={"compute-cpu": 2.0}, names={}, gpu_meanwhile=works)


def test_what_helps_is_not_known_where_a_gpu_worked_and_no_wait_was_recorded() -> None:
    kinds = {"compute-cpu": 2.0}
    found = headline(window=2.0, kinds=kinds, names={}, gpu_meanwhile=0.8, has_waits=False)
    assert "no call that waits for the GPU was recorded" in found
    assert found.endswith("the GPU worked for 40 % of that time, so what helps is not known")
    assert "what helps most is" in headline(window=2.0, kinds=kinds, names={}, gpu_meanwhile=0.01, has_waits=False)


def test_what_is_before_the_first_rank_of_a_path_is_said_and_looked_at_first() -> None:
    kinds, names = {"compute-cpu": 0.6, "unattributed": 0.4}, {key: {"-": 0.2, "aten::add": 0.1} for key in CAUSES}
    found = headline(window=1.0, kinds=kinds, names=names, begins=Begins(7, 0.4), of_ranks=8)
    assert "60 % of it on the CPU, which did not wait for the GPU, 40 % before rank 7 began: " in found
    assert found.endswith("what to look at first is why rank 7, or its profiler, began 400 ms after the first rank")
    less = headline(window=1.0, kinds=kinds | {"unattributed": 0.1}, names=names, begins=Begins(7, 0.1), of_ranks=8)
    assert "10 % before rank 7 began: what helps most is fewer and larger operators" in less


def test_what_is_not_explained_is_said_beside_what_is() -> None:
    found = headline(window=1.0, kinds={"gpu-compute": 0.8, "unattributed": 0.2}, names={})
    assert "80 % of it computing on the GPU, 20 % of it cannot be explained from what was recorded: " in found


def test_one_rank_alone_cannot_tell_exchanging_from_waiting() -> None:
    kinds = {"gpu-communication": 1.0}
    assert "ranks that come together" in headline(window=1.0, kinds=kinds, names={})
    assert "ranks that come together" not in headline(window=1.0, kinds=kinds, names={}, of_ranks=2)


def test_one_operator_that_takes_most_is_what_to_make_faster() -> None:
    names = {key: {"aten::empty": 0.7} for key in CAUSES}
    found = headline(window=1.0, kinds={"compute-cpu": 0.9}, names=names)
    assert found.endswith("what helps most is less time in 'aten::empty' (70 % of the window)")


def test_no_gpu_is_spoken_of_where_there_is_none() -> None:
    for kind in ("compute-cpu", "gpu-communication", "data-loading"):
        for names in ({"-": 0.9}, {"aten::mm": 0.9}, {}):
            found = headline(window=1.0, kinds={kind: 0.9}, names=dict.fromkeys(CAUSES, names), has_gpu=False)
            assert not re.search("GPU|CUDA", found)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.009571, "9.57 ms"),
        (0.09999, "100 ms"),
        (0.9998, "1 s"),
        (43.42, "43.4 s"),
        (4321.0, "4321 s"),
        (3e-7, "0.0003 ms"),
    ],
)
def test_durations_have_figures_enough_to_compare_them(seconds: float, said: str) -> None:
    assert in_figures(seconds) == said


def test_another_cause_comes_first_where_the_gpu_worked_while_the_cpu_took_the_time() -> None:
    kinds = {"compute-cpu": 0.7, "data-loading": 0.3}
    found = headline(window=1.0, kinds=kinds, names={}, gpu_meanwhile=0.6)
    assert "(the GPU worked for 86 % of that time), 30 % loading data: what helps most is more workers of" in found
    assert "a faster CPU and a faster GPU" in headline(window=1.0, kinds=kinds, names={}, gpu_meanwhile=0.37)
