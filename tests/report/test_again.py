from __future__ import annotations

from dataclasses import replace

from dask_efficiency.accounts.lines import Frame
from dask_efficiency.report.again import computed_again
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stacks import exact_stacks
from dask_efficiency.report.values import ProfileRow, Repeat
from tests.report.samples import report_of, seconds, skew

HELD = seconds(thread_cpu=20)


def of(repeats: dict[str, Repeat], *stacks: tuple[str, int]) -> EfficiencyReport:
    """Twenty tasks of one prefix, sampled in functions, the innermost last, for some time each."""
    profile = tuple(
        ProfileRow("thread-cpu", "", "load-sum", tuple(Frame(name, "etl.py", 3) for name in names.split()), ns)
        for names, ns in stacks
    )
    report = report_of(HELD, by_prefix={"load-sum": HELD}, skew={"load-sum": skew(count=20)}, profile=profile)
    return replace(report, repeats=repeats)


def test_of_steps_within_tasks_the_time_in_their_functions_counts() -> None:
    repeats = {
        "load in load-sum": Repeat(15, 4, "load", "load-sum"),
        "arange in load-sum": Repeat(15, 4, "arange", "load-sum"),
    }
    report = of(repeats, ("me.load decoded", 6), ("reduced", 2))
    again = computed_again(report, exact_stacks(report))
    assert again is not None
    # Three quarters of the tasks, of which three quarters of the time are in the step; the other has no sample.
    assert again.seconds == 0.75 * 0.75 * 20
    assert (again.tasks, again.times, again.most, again.prefix) == (15, 4, "load in tasks of load-sum", "load-sum")


def test_operations_are_named_as_their_keys_are() -> None:
    report = of({"add in load-sum": Repeat(20, 2, "add", "load-sum")}, ("add(array(float64),float)", 4))
    again = computed_again(report, exact_stacks(report))
    assert again is not None
    assert again.seconds == 20.0


def test_steps_without_samples_cost_nothing_that_is_known() -> None:
    report = of({"load in load-sum": Repeat(15, 4, "load", "load-sum")}, ("reduced", 2))
    assert computed_again(report, exact_stacks(report)) is None


def test_frames_of_dask_stand_before_the_step_and_a_folder_of_that_name_does_not() -> None:
    called = Frame("_pass_extra_kwargs", "/venv/lib/python3.12/site-packages/dask/array/core.py", 2000)
    stack = (called, Frame("decoded", "/home/dask/prog.py", 3))
    report = of({"decoded in load-sum": Repeat(20, 2, "decoded", "load-sum")})
    report = replace(report, profile=(ProfileRow("thread-cpu", "", "load-sum", stack, 5),))
    again = computed_again(report, exact_stacks(report))
    assert again is not None
    assert again.seconds == 20.0


def test_tasks_of_their_own_count_whole() -> None:
    report = of({"load-sum": Repeat(5, 2)})
    again = computed_again(report, exact_stacks(report))
    assert again is not None
    assert (again.seconds, again.tasks, again.most, again.prefix) == (5.0, 5, "load-sum", "load-sum")
