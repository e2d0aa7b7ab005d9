"""The report that is made of a scheduler's reply, by hand."""

from dataclasses import asdict
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from dask_efficiency.accounts.facts import Facts, encode_facts
from dask_efficiency.report.replies import report_of
from tests.report.samples import skew
from tests.strategies import nanoseconds


def reply(**fields: Any) -> dict[str, Any]:
    """Two workers that were idle for 10 ns each, of which 6 and 2 for lack of parallelism."""
    idle = {"a": {"idle/parallelism": 6, "idle/graph": 4}, "b": {"idle/parallelism": 2, "idle/scheduler": 8}}
    given: dict[str, Any] = {"window": 100, "outstanding": 100, "no_workers": 0, "price": None}
    given["nthreads"] = {"a": 1, "b": 1}
    causes = fields.pop("causes", idle)
    given["facts"] = encode_facts(Facts.of_views({name: {"idle": 10} for name in "ab"}, causes=causes))
    return {**given, **fields}


@given(st.dictionaries(st.text(max_size=3), nanoseconds))
@example({"join": 12, "sum": 4})
def test_waiting_for_a_prefix_never_exceeds_the_idle_time_of_workers_for_lack_of_parallelism(seen):
    found = report_of(reply(waited_for=seen), name="x", started=0.0)
    assert sum(found.waited_for.values()) == min(8, sum(seen.values()))
    assert all(0 < ns <= seen[prefix] for prefix, ns in found.waited_for.items())
    if seen == {"join": 12, "sum": 4}:
        assert found.waited_for == {"join": 6, "sum": 2}
    never_idle = report_of(reply(waited_for=seen, causes={}), name="x", started=0.0)
    assert (never_idle.waited_for, never_idle.notes) == ({}, ())


def test_the_skew_of_a_reply_is_in_the_report_unless_it_is_of_another_kind() -> None:
    assert report_of(reply(skew={"join": asdict(skew())}), name="x", started=0.0).skew == {"join": skew()}
    found = report_of(reply(skew={"join": {"boredom": 1}}), name="x", started=0.0)
    assert found.skew == {}
    (note,) = found.notes
    assert note.startswith("there is no comparison of tasks: TypeError")
