from dask_efficiency.report.clauses import long_task, skewed
from dask_efficiency.straggler.long_tail import LongTask
from tests.report.samples import skew

LONG = LongTask("join", "('join', 13)", "w1", 200, 0.525, 21.0, 1e6, 20e6)


def test_the_longest_task_of_a_prefix_is_said_with_how_long_nothing_else_ran() -> None:
    assert skewed("join", skew()) == (
        "the largest of 200 join took 21.0 s, 40 times the median; for 19.0 s nothing else ran"
    )


def test_the_longest_is_not_called_the_largest_where_another_is() -> None:
    said = "the longest of 200 join took 21.0 s, 40 times the median; for 19.0 s nothing else ran"
    assert skewed("join", skew(largest_key="another")) == said
    assert skewed("join", skew(max_bytes=1.5 * 2**20)) == said


def test_nothing_is_said_of_a_short_time_alone() -> None:
    for seconds in (0.0, 1.0):
        assert skewed("join", skew(alone_seconds=seconds)).endswith("40 times the median")


def test_where_a_trace_knows_the_size_of_its_input_both_are_said_once() -> None:
    said = "task \"('join', 13)\" took 21.0 s, 40 times the median of its prefix, its input is 20 times as large"
    assert long_task(LONG) == said
    assert long_task(LONG, skew()) == f"{said}; for 19.0 s nothing else ran"
    assert long_task(LONG, skew(longest_key="another")) == said


def test_a_hostile_prefix_is_harmless() -> None:
    assert "\x1b" not in skewed("\x1b[31m" + "x" * 1000, skew())
