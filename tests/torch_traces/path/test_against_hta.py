"""Our graphs and longest paths of torch's traces are HTA's, or a test shows what HTA does wrong on that trace."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from dask_efficiency.torch_traces.kineto.trace import GPU_WORK
from dask_efficiency.torch_traces.path.graph import EdgeKind
from dask_efficiency.torch_traces.path.longest import summary
from tests.torch_traces.path.compared import Compared, Ours, load
from tests.torch_traces.path.hta import Answer, Question, ask
from tests.torch_traces.path.random_traces import random_trace
from tests.torch_traces.path.recorded import record_training, with_a_kernel

TESTS = Path(__file__).parents[2]
DATA = TESTS / "data" / "kineto"

FILES = {
    "simple_add": TESTS / "gpu" / "data" / "simple_add.json.gz",
    "cudagraph": TESTS / "gpu" / "data" / "cudagraph.json.gz",
    "dlrm": DATA / "dlrm" / "rank0.json.gz",
    "cut names": DATA / "dlrm" / "rank1.json.gz",
    **{path.name.removesuffix(".json.gz"): path for path in sorted(DATA.glob("*.json.gz"))},
}
ALEX = "[param|pytorch.model.alex_net|0|0|0|measure|forward]"
#: Answers of HTA to questions.
Hta = Callable[[Question], Answer]
#: HTA and we have the same of these.
SAME: dict[str, Question] = {
    **{
        f"{name}, all": Question(str(FILES[name]))
        for name in ("simple_add", "alexnet", "event_sync", "h100", "nccl", "dlrm")
    },
    "simple_add, one": Question(str(FILES["simple_add"]), ALEX, 1),
    "simple_add, two": Question(str(FILES["simple_add"]), ALEX, (0, 1)),
    "alexnet, one": Question(str(FILES["alexnet"]), ALEX, 1),
    "event_sync, one": Question(str(FILES["event_sync"]), "ProfilerStep", 0),
    "h100, one": Question(str(FILES["h100"]), "ProfilerStep"),
}
#: HTA cannot do these, or not rightly.
OTHER = {name: Question(str(FILES[name])) for name in ("cpu_only", "resnet50", "mi300", "cudagraph", "cut names")}
#: What HTA's own tests assert, rank 0: nodes and edges, nodes of the longest path, microseconds, and percent.
KNOWN = {
    "simple_add, one": ((414, 440), 315, 241_724, {"cpu_bound": 99.7791, "gpu_compute_bound": 0.2102}),
    "alexnet, one": (
        (418, 456),
        149,
        35_834,
        {
            "cpu_bound": 89.4179,
            "gpu_compute_bound": 10.3589,
            "gpu_kernel_kernel_overhead": 0.1395,
            "gpu_kernel_launch_overhead": 0.0837,
        },
    ),
    "event_sync, one": ((54, 57), 40, 2_411, {"cpu_bound": 98.09}),
}
RANDOM = range(30)
#: Random traces that HTA does wrong.
WAIT_FOR_LATER, TOUCHING_CALLS, TWO_WAITS = (21, 22), 30, 1199


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def trained(folder: Path) -> dict[str, Question]:
    """Questions about steps of training that were recorded just now."""
    alone, path = folder / "trained.json", folder / "trained_and_kernel.json"
    record_training(alone)
    with_a_kernel(alone, path)
    return {
        "all": Question(str(path)),
        "a step": Question(str(path), "ProfilerStep", 1),
        "two steps, loading": Question(str(path), "ProfilerStep", (1, 2), ("DataLoader",)),
    }


@pytest.fixture(scope="module")
def made_up(folder: Path) -> dict[int, Question]:
    found = {}
    for seed in (*RANDOM, TOUCHING_CALLS, TWO_WAITS):
        path = folder / f"{seed}.json"
        path.write_text(json.dumps(random_trace(seed)))
        found[seed] = random_question(seed, path)
    return found


def random_question(seed: int, path: Path) -> Question:
    """About a random trace: of all of it or of steps; HTA counts steps in the order of the file."""
    steps = [event["ts"] for event in json.loads(path.read_text())["traceEvents"] if "ProfilerStep" in event["name"]]
    loading = ("DataLoader",) if seed % 2 else ()
    if seed % 3 == 0 or steps != sorted(steps):
        return Question(str(path), data_loading=loading)
    return Question(str(path), "ProfilerStep", (0, 1) if seed % 3 == 2 and len(steps) > 1 else 0, loading)


@pytest.fixture(scope="module")
def hta(request: pytest.FixtureRequest) -> Hta:
    """HTA's answers, all from one process."""
    questions = [*SAME.values(), *OTHER.values(), *request.getfixturevalue("made_up").values()]
    if find_spec("torch") is not None:
        questions += request.getfixturevalue("trained").values()
    answers = dict(zip(questions, ask(questions), strict=True))
    return answers.__getitem__


def compared_with(hta: Hta, question: Question) -> Compared:
    return Compared(load(question.path), question, hta(question))


@pytest.mark.parametrize("name", SAME)
def test_a_recorded_trace_has_htas_graph_and_longest_path(name: str, hta: Hta) -> None:
    assert compared_with(hta, SAME[name]).differences() == []


@pytest.mark.parametrize("name", ["all", "a step", "two steps, loading"])
def test_steps_of_training_have_htas_graph_and_longest_path(name: str, trained: dict[str, Question], hta: Hta) -> None:
    assert compared_with(hta, trained[name]).differences() == []


@pytest.mark.parametrize("seed", RANDOM)
def test_a_random_trace_has_htas_graph_and_longest_path(seed: int, made_up: dict[int, Question], hta: Hta) -> None:
    compared = compared_with(hta, made_up[seed])
    if compared.back_in_time():
        assert seed in WAIT_FOR_LATER
        assert compared.differences_but_waits() == []
    else:
        assert compared.differences() == []


def test_hta_makes_a_call_wait_for_work_that_ended_later(made_up: dict[int, Question], hta: Hta) -> None:
    compared = compared_with(hta, made_up[WAIT_FOR_LATER[0]])
    ((work, call),) = compared.back_in_time()
    assert compared.ours.name(call[0]) == "cudaDeviceSynchronize"
    assert (work, call) not in compared.mine
    # Ours waits for the work before.
    assert [edge[0] for pair, edge in compared.only_ours().items() if pair[1] == call] == [EdgeKind.SYNC]


def test_hta_finds_circles_where_calls_touch_and_the_later_one_is_first_in_the_file(
    made_up: dict[int, Question], hta: Hta
) -> None:
    question = made_up[TOUCHING_CALLS]
    assert hta(question).error == "HTA says that the graph is not valid"
    assert len(Ours.of(load(question.path), question).longest) > 1


def test_hta_forgets_all_but_the_last_stream_that_a_kernel_waits_for(made_up: dict[int, Question], hta: Hta) -> None:
    compared = compared_with(hta, made_up[TWO_WAITS])
    assert compared.only_htas() == {}
    ((pair, (kind, _)),) = compared.only_ours().items()
    assert kind == EdgeKind.SYNC
    others = [
        edge for edge, (its_kind, _) in compared.theirs.items() if edge[1] == pair[1] and its_kind == EdgeKind.SYNC
    ]
    assert len(others) == 1


@pytest.mark.parametrize("name", KNOWN)
def test_the_numbers_of_htas_own_tests_hold_for_us(name: str) -> None:
    (nodes, edges), on_path, microseconds, percent = KNOWN[name]
    ours = Ours.of(load(SAME[name].path), SAME[name])
    joined = np.union1d(ours.graph.edges.source, ours.graph.edges.target)
    assert (len(joined), len(ours.graph.edges), len(ours.longest)) == (nodes, edges, on_path)
    assert ours.graph.edges.weight[ours.edges].sum() == microseconds * 1_000
    found = summary(ours.graph, ours.edges)
    for category, share in percent.items():
        assert found[category] * 100 == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("name", ["cpu_only", "resnet50"])
def test_hta_cannot_do_traces_without_a_gpu_or_with_old_categories(name: str, hta: Hta) -> None:
    question = OTHER[name]
    assert hta(question).error
    assert len(Ours.of(load(question.path), question).longest) > 1


def test_hta_knows_neither_all_launches_nor_the_waits_of_hip(hta: Hta) -> None:
    compared = compared_with(hta, OTHER["mi300"])
    calls = {"hipDeviceSynchronize", "hipMemcpyWithStream", "hipModuleLaunchKernel"}
    differ = {pair for pair, _ in (*compared.only_ours().items(), *compared.only_htas().items())}
    assert len(differ) > 0
    for source, target in differ:
        names = {compared.ours.name(source[0]), compared.ours.name(target[0]), compared.ours.asked_by(target[0])}
        assert names & calls


def test_hta_has_one_kernel_of_each_graph_that_is_launched(hta: Hta) -> None:
    compared = compared_with(hta, OTHER["cudagraph"])
    trace = compared.ours.graph.trace
    of_graphs = [
        int(trace.events.index[row])
        for row in np.flatnonzero(np.isin(trace.events.category, GPU_WORK)).tolist()
        if compared.ours.asked_by(int(trace.events.index[row])) == "cudaGraphLaunch"
    ]
    launches = sum(trace.names[name] == "cudaGraphLaunch" for name in trace.events.name.tolist())
    kept = set(of_graphs) & set(compared.answer.events)
    assert len(kept) == launches < len(of_graphs)
    ours = set(compared.ours.events())
    assert ours >= set(of_graphs)
    assert ours - set(compared.answer.events) == set(of_graphs) - kept


def test_hta_takes_collectives_for_computing_where_their_names_are_cut(hta: Hta) -> None:
    compared = compared_with(hta, OTHER["cut names"])
    assert (compared.only_ours(), compared.only_htas()) == ({}, {})
    shares = summary(compared.ours.graph, compared.ours.edges)
    assert shares["gpu_communication_bound"] > 0.8
    assert shares["gpu_compute_bound"] == 0
    assert compared.answer.summary["gpu_compute_bound"] / 100 == pytest.approx(shares["gpu_communication_bound"])
    assert "gpu_communication_bound" not in compared.answer.summary
    # "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigne" is "unsigne" once it has been shortened.
    collectives = [name for name in compared.trace.names if name.startswith("nccl") and "(" in name]
    assert collectives
    assert not any(name.endswith(")") for name in collectives)
