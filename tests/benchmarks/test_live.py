"""The fake cluster of ``benchmarks/live.py`` has all that pages, scrapes and `top` ask of a scheduler."""

import pytest

pytest.importorskip("bokeh")
pytest.importorskip("prometheus_client")

from benchmarks.live import OURS, page, scrapes
from dask_efficiency.live.bokeh.pages import PAGES


def test_scrapes_and_answers_are_measured_with_nothing_left_out():
    found = scrapes(3, 2, 2)
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(found, 22)
    assert OURS in found


@pytest.mark.parametrize("path", PAGES)
def test_each_page_is_measured(path):
    updates, _, nbytes = page(PAGES[path], 3, 2, 6)
    assert updates
    assert nbytes >= 0
