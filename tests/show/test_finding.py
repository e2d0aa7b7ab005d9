import json
import math

import pytest

from dask_efficiency.show.finding import MAX_TITLE, Basis, Finding, numbered

SLEEPS = Finding(
    kind="thread-noncpu/sleep",
    title="Sleeping",
    where="`read_day`, slow_job.py:23",
    lost_seconds=14.9,
    saves_seconds=7.6,
    saves_interval=(7.0, 7.7),
    basis=Basis.REPLAYED,
    advice="More threads for each worker let such waits overlap.",
    evidence={"share_of_thread_time": 0.91},
)
REPLAYED = {"saves_seconds": 1.0, "basis": Basis.REPLAYED}


def test_a_finding_is_two_lines_and_one_where_there_is_room_for_no_more():
    first, second = "Sleeping: saves 7.6 s. `read_day`, slow_job.py:23", SLEEPS.advice
    assert str(SLEEPS) == f"{first}\n{second}"
    assert SLEEPS.in_a_line == f"{first}. {second}"
    assert Finding("x", "Sleeping", lost_seconds=2.0).in_a_line == "Sleeping: 2.0 s of thread time."


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({"saves_seconds": 7.6, "basis": Basis.BOUNDED}, "Sleeping: saves up to 7.6 s."),
        ({"lost_seconds": 14.9}, "Sleeping: 14.9 s of thread time."),
        ({"where": "tasks of load"}, "Sleeping. Tasks of load"),
    ],
)
def test_unknown_parts_are_left_out(fields, first):
    assert Finding("thread-noncpu/sleep", "Sleeping", **fields).lines == (first,)


def test_json_has_every_field():
    plain = json.loads(json.dumps(SLEEPS.to_dict()))
    assert plain["basis"] == "replayed"
    assert plain["saves_interval"] == [7.0, 7.7]
    assert plain["evidence"] == {"share_of_thread_time": 0.91}
    assert set(plain) == set(Finding.__slots__)


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"title": ""}, "expected 1 to 70 characters"),
        ({"title": "x" * (MAX_TITLE + 1)}, "expected 1 to 70 characters"),
        ({"lost_seconds": -1.0}, "lost_seconds of 'x' is -1.0; expected seconds, at least 0"),
        ({"saves_seconds": math.inf, "basis": Basis.BOUNDED}, "saves_seconds of 'x' is inf; expected seconds"),
        ({"saves_seconds": 1.0}, "saves_seconds of 'x' is 1.0, unknown; expected both or none to be known"),
        (
            {**REPLAYED, "saves_interval": (2.0, 3.0)},
            "saves_interval of 'x' is .*; expected it around what a replay saves",
        ),
        ({"saves_interval": (0.0, 3.0)}, "saves_interval of 'x' is .*; expected it around what a replay saves"),
        ({"confidence": 1.5}, "confidence of 'x' is 1.5; expected 0 to 1"),
        ({"basis": Basis.REPLAYED}, "saves_seconds of 'x' is None, replayed; expected both or none to be known"),
    ],
)
def test_impossible_fields_are_refused(fields, refusal):
    with pytest.raises(ValueError, match=refusal):
        Finding(**{"kind": "x", "title": "X", **fields})


def test_of_findings_with_the_same_advice_those_below_the_first_refer_to_its_number():
    rows = (("client", "See it."), ("small", "Call it once."), ("late", "Call it once."), ("idle", ""), ("more", ""))
    found = numbered(Finding(kind, kind.title(), "a.py:3", advice=advice) for kind, advice in rows)
    assert found == (
        ("Client. A.py:3", "See it."),
        ("Small. A.py:3", "Call it once."),
        ("Late. A.py:3", "See 2: the same helps here."),
        ("Idle. A.py:3",),
        ("More. A.py:3",),
    )
