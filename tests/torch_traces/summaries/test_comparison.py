import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dask_efficiency.cli import main
from dask_efficiency.torch_traces import TorchComparison, compare
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from tests.torch_traces.path.programs import Event, call, on_cpu, rank_of, work
from tests.torch_traces.path.samples import RECORDED


def steps(*lasts: int, kernels: tuple[str, ...] = ("gemm",), each: int = 10, often: int = 1) -> list[Event]:
    """Steps of some microseconds, in each of which an operator launches kernels of ``each`` microseconds."""
    events, at, number = [], 0, 0
    for step, took in enumerate(lasts):
        events.append(on_cpu(f"ProfilerStep#{step}", at, at + took, cat="user_annotation"))
        for place, name in enumerate(kernels * often):
            begins, number = at + 100 * place, number + 1
            events.append(on_cpu(f"aten::{name}", begins, begins + 20))
            events.append(call("cudaLaunchKernel", begins + 2, begins + 4, number))
            events.append(work(name, begins + 5, begins + 5 + each, number))
        at += took
    return events


def compared(before: list[Event], after: list[Event]) -> TorchComparison:
    return compare(*(KinetoTrace((rank_of(side),)) for side in (before, after)))


def states(found: TorchComparison, table: str = "kernels") -> dict[str, str]:
    frame = found.to_frame(table)
    return dict(zip(frame["name"], frame["what"], strict=True))


def test_kernels_are_new_gone_slower_and_more_often_by_step() -> None:
    before = steps(1000, 1000, kernels=("gemm", "relu"))
    after = steps(1000, 1000, 1000, kernels=("gemm", "silu"), each=20, often=2)
    assert states(compared(before, after)) == {"gemm": "slower, more often", "relu": "gone", "silu": "new"}
    assert states(compared(before, after), "operators")["aten::gemm"] == "more often"
    assert states(compared(after, before))["gemm"] == "faster, less often"


def test_more_steps_of_the_same_are_no_change() -> None:
    found = compared(steps(1000, 1000), steps(*[1000] * 5))
    assert states(found) == {"gemm": ""}
    assert found.steps["total"].change == 0


def test_a_slower_step_is_worse_if_it_is_beyond_the_spread() -> None:
    slower = compared(steps(1000, 1010, 990), steps(1200, 1210, 1190))
    assert slower.is_worse(Fraction(1, 10))
    assert not slower.is_worse(Fraction(3, 10))
    assert slower.headline == "The median step is 20 % slower: 1.0 ms to 1.2 ms"
    noisy = compared(steps(1000, 2000, 500), steps(1200, 2500, 600))
    assert not noisy.is_worse(Fraction(1, 10))
    assert "within what steps vary by" in noisy.headline


def test_of_one_step_each_it_is_not_known_how_much_steps_vary() -> None:
    found = compared(steps(1000), steps(1300))
    assert "by how much steps vary" in found.headline
    assert set(found.to_frame("steps")["beyond_spread"]) == {"not known"}
    assert not found.is_worse(Fraction(1, 10))


def of_ranks(*sides: list[list[Event]]) -> TorchComparison:
    """Comparison of jobs, each of several ranks."""
    ranks = (tuple(replace(rank_of(events), rank=rank) for rank, events in enumerate(side)) for side in sides)
    return compare(*map(KinetoTrace, ranks))


def test_steps_vary_about_the_median_of_their_own_rank() -> None:
    before = [steps(*[1000, 1001] * 4), steps(*[2000, 2001] * 4)]
    slower = of_ranks(before, [steps(*[1300, 1301] * 4), steps(*[2600, 2601] * 4)])
    assert slower.is_worse(Fraction(1, 10))
    assert "30 % slower" in slower.headline
    # more steps of the slower rank are no slower steps
    more = of_ranks(before, [steps(*[1000, 1001] * 4), steps(*[2000, 2001] * 5)])
    assert not more.steps["total"].is_beyond_spread


def test_of_one_step_of_each_of_two_ranks_it_is_not_known_how_much_steps_vary() -> None:
    found = of_ranks([steps(1000), steps(1001)], [steps(1300), steps(1301)])
    assert not found.steps["total"].has_spread
    assert not found.is_worse(Fraction(1, 10))


def test_sums_are_by_rank_where_a_rank_has_no_steps() -> None:
    with_steps = steps(*[1000] * 10)
    without = [event for event in with_steps if event["cat"] != "user_annotation"]
    for found in (
        of_ranks([with_steps], [without]),
        of_ranks([with_steps, with_steps], [with_steps, without]),
    ):
        assert states(found) == {"gemm": ""}
        assert states(found, "operators") == {"aten::gemm": ""}
        assert found.to_frame()["count_after"].tolist() == [10]
        # without ranges of steps, the last kernel is where a trace ends
        ranks = found.to_frame("ranks")
        assert (ranks["total_after"] > 0.9 * ranks["total_before"]).all()
        titles = [section.title for section in found.document.sections]
        assert "Kernels by rank" in titles
        assert "Ranks by step" not in titles


def test_what_did_not_change_is_not_called_faster() -> None:
    headline = "The median step did not change: 1.0 ms"
    assert compared(steps(1000, 1000), steps(1000, 1000)).headline == headline
    assert compared(steps(1000), steps(1000)).headline.startswith(f"{headline}; with one step each")


def asked(tmp_path: Path, *options: str, before: Any = None, after: Any = None) -> Result:
    for name, events in (("old", before or steps(1000, 1000)), ("new", after or steps(1300, 1300))):
        (tmp_path / f"{name}.json").write_text(json.dumps({"traceEvents": events}))
    return CliRunner().invoke(
        main, ["torch", "compare", str(tmp_path / "old.json"), str(tmp_path / "new.json"), *options]
    )


def test_the_command_fails_if_the_median_step_is_worse(tmp_path: Path) -> None:
    assert asked(tmp_path).exit_code == 0
    failed = asked(tmp_path, "--fail-on-worse", "10%")
    assert failed.exit_code == 1
    assert "--fail-on-worse allows 10 %" in failed.output
    assert asked(tmp_path, "--fail-on-worse", "40%").exit_code == 0


def test_of_one_step_each_nothing_is_judged(tmp_path: Path) -> None:
    assert asked(tmp_path, before=steps(1000), after=steps(1300)).exit_code == 0
    judged = asked(tmp_path, "--fail-on-worse", "10%", before=steps(1000), after=steps(1300))
    assert judged.exit_code == 2
    assert "how steps vary" in judged.output


def test_without_steps_it_is_compared_and_not_judged(tmp_path: Path) -> None:
    no_steps = [on_cpu("aten::mm", 0, 9)]
    assert "no steps of the profiler" in asked(tmp_path, before=no_steps).output
    assert asked(tmp_path, "--fail-on-worse", "10%", before=no_steps).exit_code == 2


def test_it_is_shown_as_text_page_json_and_frames(tmp_path: Path) -> None:
    found = compare(RECORDED["dlrm"], RECORDED["dlrm"])
    assert "did not change: 16 ms; with one step each" in " ".join(str(found).split())
    found.to_html(tmp_path / "page.html")
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    for table, rows in data["tables"].items():
        assert len(found.to_frame(table)) == len(rows) > 0
    assert {row["what"] for row in data["tables"]["kernels"]} == {""}
    assert [row["rank"] for row in data["tables"]["ranks"]] == [*range(8)]
    with pytest.raises(ValueError, match="'steps'"):
        found.to_frame("nothing")
