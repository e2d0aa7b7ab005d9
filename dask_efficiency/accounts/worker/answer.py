"""WindowAnswer: what a worker answers about a window: its thread time as facts, and what is beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_efficiency.accounts.buckets import Bucket, fit_causes
from dask_efficiency.accounts.checks import MAX_NAMES, RefusedPayload, counts, mapping, short, whole
from dask_efficiency.accounts.details import WindowDetails, decode_details, encode_details
from dask_efficiency.accounts.facts import NO_LABEL, Facts, FactsBuilder, decode_facts, encode_facts, time_by_cause
from dask_efficiency.accounts.metered import BYTES_AN_HOUR, MEMORY, SECONDS, Metered
from dask_efficiency.accounts.tables import Bool
from dask_efficiency.accounts.wire.snapshots import SCHEMA, check_schema
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, UNHELD_BUCKETS, Outcome, WindowBalance

#: Label of free slots' time in which libraries' threads computed: ``idle``, as far as there was work.
BESIDE_FREE_SLOTS = "threads of libraries beside free slots"
#: Rows of an answer; those of it with labels are counted one by one. A guess, above what a worker keeps.
MAX_ROWS = 1 << 18
_ROW_BUCKETS = tuple(map(str, (*TASK_BUCKETS, Bucket.RUNNING)))
_OF_WORKERS = frozenset((*_ROW_BUCKETS, *map(str, UNHELD_BUCKETS)))
_OUTCOMES = frozenset(map(str, Outcome))
_NONCPU = str(Bucket.THREAD_NONCPU)
_NO_DETAILS = WindowDetails()


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """A worker's part of a window; the thread time of ``facts`` is nthreads * elapsed, in ns."""

    nthreads: int
    elapsed: int
    #: Without workers' names.
    facts: Facts
    tasks: Mapping[str, int]
    details: WindowDetails = field(default_factory=WindowDetails)


def answer_of(
    balance: WindowBalance,
    *,
    causes: Mapping[tuple[str, str], Mapping[str, int]] | None = None,
    overhead: Mapping[str, int] | None = None,
    beside_free_slots: Mapping[tuple[str, str], int] | None = None,
    metered: Mapping[Metered, int] | None = None,
    details: WindowDetails = _NO_DETAILS,
) -> WindowAnswer:
    """Put a worker's answer together.

    Parameters
    ----------
    balance
        The ledger's accounts.
    causes
        Of ``thread-noncpu``, by (span, prefix) and bare cause; those of a row add up to it.
    overhead
        Weights of the causes of ``overhead``, of the whole worker.
    beside_free_slots
        Time in which threads of libraries computed in place of free slots, by (span, prefix).
    metered
        What Dask's ``context_meter`` counted.
    """
    builder = FactsBuilder()
    for bucket, ns in balance.free.items():
        if ns:
            builder.add(ns, bucket=bucket)
    whole_overhead = 0
    for (span, prefix), row in balance.rows.items():
        of_row = dict(zip(_ROW_BUCKETS, row, strict=True))
        whole_overhead += of_row[Bucket.OVERHEAD]
        by_cause = (causes or {}).get((span, prefix), {})
        builder.add_time(of_row, {f"{_NONCPU}/{cause}": ns for cause, ns in by_cause.items()}, span=span, prefix=prefix)
    if any((overhead or {}).values()):
        for name, ns in fit_causes(overhead or {}, Bucket.OVERHEAD, whole_overhead).items():
            builder.move(ns, {"bucket": Bucket.OVERHEAD}, cause=name.partition("/")[2])
    for (span, prefix), ns in (beside_free_slots or {}).items():
        builder.add(ns, span=span, prefix=prefix, bucket=Bucket.IDLE, label=BESIDE_FREE_SLOTS, unit=SECONDS)
    for (context, span, prefix, label, unit), value in (metered or {}).items():
        builder.add(value, span=span, prefix=prefix, bucket=context, label=label or NO_LABEL, unit=unit)
    return WindowAnswer(balance.nthreads, balance.elapsed, builder.build(), balance.tasks, details)


def _check_rows(facts: Facts) -> None:
    """Refuse values below 0, but where the causes of overhead are told of all tasks together; and too many labels."""
    rows, nobodys = facts.rows, _nobodys(facts)
    overhead = nobodys & facts.named("bucket", {Bucket.OVERHEAD})
    slopes = facts.named("bucket", {MEMORY}) & facts.named("unit", {BYTES_AN_HOUR})
    if (least := rows.value[~slopes & (~overhead | (rows.cause != 0))].min(initial=0)) < 0:
        raise RefusedPayload(f"facts have {least}; expected 0 or more, but for overhead whose causes are told")
    if (ns := sum(rows.value[overhead].tolist())) < 0:
        raise RefusedPayload(f"facts have {ns} ns of overhead of no span and no prefix; expected 0 or more")
    if len(facts.labelled) > MAX_NAMES:
        raise RefusedPayload(f"facts have {len(facts.labelled)} rows with labels; expected at most {MAX_NAMES}")


def _nobodys(facts: Facts) -> Bool:
    rows = facts.rows
    found: Bool = (rows.span == 0) & (rows.prefix == 0) & (rows.label == 0)
    return found


def beside_in(facts: Facts) -> dict[tuple[str, ...], int]:
    """Find by span and prefix for how long threads of libraries computed in place of free slots."""
    return facts.labelled.take(_beside(facts.labelled)).sums("span", "prefix")


def metered_in(facts: Facts) -> dict[Metered, int]:
    """Find what a worker metered in its answer."""
    rows = facts.labelled.take(~_beside(facts.labelled))
    return {Metered(*names): value for names, value in rows.sums("bucket", "span", "prefix", "label", "unit").items()}


def _beside(facts: Facts) -> Bool:
    return facts.named("label", {BESIDE_FREE_SLOTS}) & facts.named("bucket", {Bucket.IDLE})


def encode_answer(answer: WindowAnswer, *, limit: int = 300) -> dict[str, Any]:
    """Encode for msgpack, with at most ``limit`` rows of each profile."""
    return {
        "schema": SCHEMA,
        "nthreads": answer.nthreads,
        "elapsed": answer.elapsed,
        "facts": encode_facts(answer.facts),
        "tasks": dict(answer.tasks),
        "details": encode_details(answer.details, limit=limit),
    }


def decode_answer(payload: object) -> WindowAnswer:
    """Check and read an answer; raises :class:`RefusedPayload`."""
    fields = mapping("window", payload)
    check_schema(fields.get("schema"))
    answer = WindowAnswer(
        nthreads=whole("nthreads", fields.get("nthreads")),
        elapsed=whole("elapsed", fields.get("elapsed")),
        facts=decode_facts(fields.get("facts"), max_rows=MAX_ROWS, of_worker=True),
        tasks=counts("tasks", fields.get("tasks"), _OUTCOMES),
        details=decode_details(fields.get("details")),
    )
    by_cause = time_by_cause(answer.facts)
    if not (buckets := {bucket for bucket, _ in by_cause}) <= _OF_WORKERS:
        raise RefusedPayload(f"facts have time in {short(sorted(buckets - _OF_WORKERS))}, which no worker knows of")
    _check_rows(answer.facts)
    recorded = sum(by_cause.values())
    if recorded != answer.nthreads * answer.elapsed:
        expected = f"nthreads x elapsed = {answer.nthreads} x {answer.elapsed} ns"
        raise RefusedPayload(f"the window holds {recorded} ns; expected {expected}")
    return answer
