from typing import Any

import numpy as np
import pytest
from hypothesis import given

from dask_efficiency.accounts.checks import MAX_NAMES as MAX_LABELLED
from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.facts import NO_LABEL, FactsBuilder, encode_facts
from dask_efficiency.accounts.metered import Metered
from dask_efficiency.accounts.worker.answer import (
    BESIDE_FREE_SLOTS,
    answer_of,
    beside_in,
    decode_answer,
    encode_answer,
    metered_in,
)
from tests.payloads import ledger_with_everything, through_msgpack
from tests.strategies import window_answers


def payload(**changes: Any) -> dict[str, Any]:
    window = ledger_with_everything().close_window("w", at=600)
    assert window is not None
    return {**encode_answer(answer_of(window)), **changes}


def facts(*rows: dict[str, Any]) -> dict[str, Any]:
    """Encoded facts: of the whole window, and with these rows more."""
    builder = FactsBuilder()
    fields = payload()
    builder.add(fields["nthreads"] * fields["elapsed"], bucket="idle")
    for row in rows:
        builder.add(**row)
    return encode_facts(builder.build())


@given(window_answers())
def test_an_answer_survives_the_wire(answer):
    assert decode_answer(through_msgpack(encode_answer(answer, limit=100))) == answer


@given(window_answers())
def test_the_thread_time_is_that_of_the_ledger_whatever_is_known_of_it(answer):
    assert sum(answer.facts.time.sums("bucket").values()) == answer.nthreads * answer.elapsed
    assert all(ns >= 0 for ns in answer.facts.time.sums("bucket", "cause").values())


def test_a_label_that_is_empty_is_no_thread_time():
    answer = answer_of(
        ledger_with_everything().close_window("w", at=600), metered={Metered("execute", "", "", "", "x"): 3}
    )
    assert metered_in(answer.facts) == {Metered("execute", "", "", NO_LABEL, "x"): 3}


def test_a_users_label_is_no_claim_of_idle_time():
    balance = ledger_with_everything().close_window("w", at=600)
    label = Metered("execute", "", "inc", BESIDE_FREE_SLOTS, "seconds")
    answer = answer_of(balance, beside_free_slots={("span", "inc"): 7}, metered={label: 3})
    assert (beside_in(answer.facts), metered_in(answer.facts)) == ({("span", "inc"): 7}, {label: 3})


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        *((value, "^window is .*; expected a mapping") for value in (None, [], "x", 3, b"", frozenset())),
        *((payload(schema=value), "^schema is .*; expected 7") for value in (None, 0, 3, "1", 1.0, True, [1])),
        *(
            ({name: value for name, value in payload().items() if name != field}, f"^{field} is None")
            for field in [*payload()][1:]
        ),
        *((payload(tasks={bucket: 1}), f"^tasks has .*{bucket}") for bucket in ("running", "coffee")),
        *(
            (payload(facts=facts({"value": 0, "bucket": bucket})), f"time in .*{bucket}")
            for bucket in ("no-work", "lost-worker", "unmeasured", "coffee")
        ),
        (payload(facts=facts({"value": 0, "bucket": "idle", "cause": "gil"})), "time in 'idle/gil'"),
        (payload(facts=facts({"value": 0, "bucket": "spill", "cause": "gil"})), "time in 'spill/gil'"),
        (payload(facts=facts({"value": -1, "bucket": "x", "label": "rows"})), "facts have -1; expected"),
        (
            payload(facts=facts({"value": 5, "bucket": "spill", "prefix": "p"}, {"value": -5, "bucket": "spill"})),
            "facts have -5; expected",
        ),
        (
            payload(facts=facts({"value": 5, "bucket": "idle", "cause": "graph"}, {"value": -5, "bucket": "overhead"})),
            "-5 ns of 'overhead'",
        ),
        (
            payload(
                facts=facts(
                    {"value": -5, "bucket": "thread-noncpu", "cause": "gil"},
                    {"value": 5, "bucket": "thread-noncpu", "cause": "gil", "prefix": "p"},
                )
            ),
            "facts have -5; expected",
        ),
        (
            payload(facts=facts(*({"value": 0, "bucket": "x", "label": f"{i}"} for i in range(MAX_LABELLED + 1)))),
            f"{MAX_LABELLED + 1} rows with labels",
        ),
        (
            payload(facts=facts({"value": 5, "bucket": "idle"}, {"value": -5, "bucket": "idle", "prefix": "p"})),
            "facts have -5; expected",
        ),
    ],
    ids=lambda item: repr(item)[-40:],
)
def test_an_answer_out_of_order_is_refused_by_the_field(broken, message):
    with pytest.raises(RefusedPayload, match=message):
        decode_answer(broken)


@pytest.mark.parametrize("off_by", [-1, 1])
def test_an_answer_that_is_off_by_one_is_refused(off_by):
    for field in ("elapsed", "nthreads"):
        with pytest.raises(RefusedPayload, match="^the window holds .* expected nthreads x elapsed = "):
            decode_answer(payload(**{field: payload()[field] + off_by}))
    sent = payload()
    values = np.frombuffer(sent["facts"]["value"], "<i8").copy()
    values[values.argmax()] += off_by
    sent["facts"]["value"] = values.tobytes()
    with pytest.raises(RefusedPayload, match="^the window holds "):
        decode_answer(sent)
