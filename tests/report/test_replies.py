"""The report that is made of a scheduler's reply, by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.report.replies import report_of
from tests.report.samples import skew
from tests.strategies import nanoseconds


def reply(**fields: Any) -> dict[str, Any]:
    """Two workers that were idle for 10 ns each, of which 6 and 2 for lack of parallelism."""
    given: dict[str, Any] = {
        "window": 100,
        "outstanding": 100,
        "no_workers": 0,
        "workers": {"a": {"idle": 10}, "b": {"idle": 10}},
        "worker_causes": {
            "a": {"idle/parallelism": 6, "idle/graph": 4},
            "b": {"idle/parallelism": 2, "idle/scheduler": 8},
        },
        "nthreads": {"a": 1, "b": 1},
        "price": None,
    }
    return {**given, **fields}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({}, {}),
        ({"join": 5, "sum": 3}, {"join": 5, "sum": 3}),
        ({"join": 5, "sum": 2}, {"join": 5, "sum": 2}),
        ({"join": 12, "sum": 4}, {"join": 6, "sum": 2}),
    ],
)
def test_free_slots_waited_for_prefixes_at_most_for_as_long_as_workers_were_idle_for_lack_of_parallelism(
    seen: dict[str, int], expected: dict[str, int]
) -> None:
    assert report_of(reply(waited_for=seen), name="x", started=0.0).waited_for == expected


def test_where_no_worker_was_idle_for_lack_of_parallelism_nothing_is_waited_for() -> None:
    found = report_of(reply(waited_for={"join": 5}, worker_causes={}), name="x", started=0.0)
    assert found.waited_for == {}
    assert found.notes == ()


@given(st.dictionaries(st.text(max_size=3), nanoseconds))
def test_what_is_waited_for_never_exceeds_what_workers_were_idle(seen: dict[str, int]) -> None:
    found = report_of(reply(waited_for=seen), name="x", started=0.0)
    assert sum(found.waited_for.values()) == min(8, sum(seen.values()))
    assert all(0 < ns <= seen[prefix] for prefix, ns in found.waited_for.items())


def test_the_skew_of_a_reply_is_in_the_report() -> None:
    assert report_of(reply(skew={"join": asdict(skew())}), name="x", started=0.0).skew == {"join": skew()}


def test_a_reply_whose_skew_is_of_another_kind_makes_a_report_without_it() -> None:
    found = report_of(reply(skew={"join": {"boredom": 1}}), name="x", started=0.0)
    assert found.skew == {}
    (note,) = found.notes
    assert note.startswith("there is no comparison of tasks: TypeError")
