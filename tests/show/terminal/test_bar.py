from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.show.parts import finalized_parts
from dask_efficiency.show.terminal.bar import BLOCKS, cells, letters, packed
from tests.report.samples import seconds


def test_three_percent_of_an_eighty_column_bar_are_two_cells_and_three_eighths() -> None:
    bar = cells([97, 3], 80)
    # 0.03 * 640 = 19.2 eighths
    assert [cell.left for cell in bar].count(1) == 2
    assert (bar[77].left, bar[77].right, bar[77].eighths) == (0, 1, 5)
    assert bar[77].character == BLOCKS[5] == "▋"


@given(st.lists(st.integers(0, 10**12), max_size=17), st.integers(1, 200))
def test_a_bar_fills_its_width_in_the_order_of_its_parts(weights: list[int], width: int) -> None:
    bar = cells(weights, width)
    assert len(bar) == (width if sum(weights) else 0)
    order = [part for cell in bar for part in (cell.left, cell.right)]
    assert order == sorted(order)
    assert all(1 <= cell.eighths <= 8 and (cell.eighths == 8) == (cell.left == cell.right) for cell in bar)


def test_where_three_parts_meet_in_a_cell_the_two_longest_share_it() -> None:
    (cell,) = cells([4, 1, 3], 1)
    assert (cell.left, cell.right, cell.eighths) == (0, 2, 5)


def test_the_letters_of_a_bar_are_in_proportion() -> None:
    assert letters(finalized_parts(seconds(thread_cpu=6, idle=1, spill=3)), 10) == "######sss."


def test_items_are_packed_into_lines_in_order() -> None:
    assert packed([4, 4, 4, 20, 1], 10) == [[0, 1], [2], [3], [4]]
    assert packed([], 10) == []
