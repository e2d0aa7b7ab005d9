from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.show.document import Along, Change, Label, Slice, Stack
from dask_efficiency.show.html.figures import CHANGE_WIDTH, along, bar, change, hint_of, in_words, pie, stack
from dask_efficiency.show.parts import finalized_parts
from tests.report.samples import seconds

sizes = st.lists(st.integers(1, 10**15), min_size=1, max_size=9)


def slices(sizes: list[int]) -> tuple[Slice, ...]:
    return tuple(Slice(Label(f"part {i}", "#000000"), size, "1.0") for i, size in enumerate(sizes))


@given(sizes)
def test_the_parts_of_a_bar_stand_side_by_side_over_its_whole_width(sizes: list[int]) -> None:
    end = 0.0
    for rect in bar(slices(sizes)):
        assert float(rect.left) == pytest.approx(end, abs=0.01)
        end = float(rect.left) + float(rect.width)
    assert end == pytest.approx(100, abs=0.01)


@given(sizes, st.integers(1, 5))
def test_the_bar_of_a_row_is_as_long_as_its_part_of_the_longest(sizes: list[int], times: int) -> None:
    rects = list(stack(Stack(slices(sizes), times * sum(sizes))))
    assert float(rects[-1].left) + float(rects[-1].width) == pytest.approx(100 / times, abs=0.11)


@given(st.floats(-1, 1))
def test_what_grew_stands_to_the_right_and_what_shrank_to_the_left(share: float) -> None:
    drawn = change(Change(share, "#000000"))
    left, right = float(drawn.left), float(drawn.left) + float(drawn.width)
    assert -0.1 <= left < right <= CHANGE_WIDTH + 0.1
    assert left >= float(drawn.middle) if share > 0 else right <= float(drawn.middle) + 0.1


def test_only_wide_wedges_have_a_label() -> None:
    wide, narrow = pie(finalized_parts(seconds(thread_cpu=95, spill=5)))
    assert (wide.label, narrow.label) == ("95 %", "")
    assert narrow.hint.startswith("spill 5.0 %: ")


def test_a_shape_says_what_it_is_and_what_that_means() -> None:
    assert hint_of(Label("spill", "", "to disk"), "5.0") == "spill 5.0 %: to disk"
    assert hint_of(Label("other"), "5.0") == "other 5.0 %"
    assert in_words(slices([1, 1])) == "part 0 1.0 %, part 1 1.0 %"


def test_the_stretches_of_a_run_follow_one_another() -> None:
    drawn = list(along(Along(((Label("a", "#111111", "first"), 0, 1), (Label("b", "#222222"), 1, 4)), 4, "1 s")))
    assert [(rect.left, rect.width, rect.colour) for rect in drawn] == [("0", "25", "#111111"), ("25", "75", "#222222")]
    assert [rect.hint for rect in drawn] == ["a: first", "b"]
