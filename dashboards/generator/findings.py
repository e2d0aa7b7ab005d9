"""The first row of the overview: how efficient the clusters are, and in words what costs them most."""

from __future__ import annotations

from typing import Any

from dashboards.generator.panels import EFFICIENCY_STEPS, VALUE, About, Column, Query, numbers, table
from dashboards.generator.queries import CLUSTERS, LOST, gain, select, share, threads, total
from dask_efficiency.accounts.buckets import GOOD, Bucket
from dask_efficiency.report.kinds import KINDS, advice
from dask_efficiency.show.drawn_buckets import COLOURS

#: Rows of the table; Prometheus has ten findings at most of one moment.
MAX_ROWS = 10

#: Minutes that findings are of.
WINDOW = 5

HEIGHT = 10

#: That of idle threads as a whole has figures of a run in it.
ADVICE = {kind: advice(kind) for kind in KINDS} | {"idle": advice("idle/unknown")}

#: Name of a label, and of a copy of it that another column shows in other words.
COPIES = {"finding": "kind", "advice": "kind"}


def findings() -> list[Any]:
    """Efficiency and what was lost, beside what fixing would save most."""
    return [
        (
            numbers(
                About(1, "Efficiency", "percentunit", 4, HEIGHT // 2),
                "Share of the threads' time that did useful work, over the time shown: computing over all time "
                "with work outstanding. 80 % and above is good. Tasks that fail count as what their thread did; "
                "see *Thread time in vain*.",
                Query(share(CLUSTERS, gain, GOOD), "efficiency"),
                steps=EFFICIENCY_STEPS,
                decimals=0,
            ),
            numbers(
                About(3, "Lost thread time", "s", 4, HEIGHT // 2),
                "Thread time that was not useful although there was work, over the time shown. Four threads that "
                "do nothing for an hour lose four hours.",
                Query(threads(CLUSTERS, gain, LOST), "lost"),
            ),
        ),
        table(
            About(22, "What costs most", "s", 20, HEIGHT, f"nothing costs 3 % of {WINDOW} minutes"),
            "Wall time that fixing it would have saved at most in the time shown; an estimate at its ends, for "
            f"findings are of the last {WINDOW} minutes. The rows do not add up. *Mostly in*: the prefix of the "
            "tasks in which more than half of it was lost. `dask-efficiency explain` says more of each kind.",
            Query(_worst(), "{{kind}}"),
            columns=(
                Column("kind", "Kind", 170, colours={kind: COLOURS[_bucket(kind)] for kind in KINDS}),
                Column("finding", "What", 270, words={kind: known.title for kind, known in KINDS.items()}),
                Column("where", "Mostly in", 130),
                Column(VALUE, "Saves up to", 190, bar=True),
                Column("advice", "What to do", words=ADVICE),
            ),
        ),
    ]


def _worst() -> str:
    """Findings by kind, with the prefix that has most of one."""
    series = select("dask_efficiency_finding_seconds")
    # Each moment's findings are of the minutes before it: their integral counts every minute that often.
    found = f"sum_over_time({series}[$__range:$__interval]) * $__interval_ms / {WINDOW * 60_000}"
    by_kind = total(found, by="kind")
    # No more than one prefix has more than half.
    most = f"group by (kind, where) ({total(found, by='kind, where')} > on (kind) group_left () 0.5 * {by_kind})"
    worst = f"topk({MAX_ROWS}, {by_kind} * on (kind) group_left (where) {most} or on (kind) {by_kind})"
    for copy, label in COPIES.items():
        worst = f'label_join({worst}, "{copy}", "", "{label}")'
    return worst


def _bucket(kind: str) -> Bucket:
    return Bucket(kind.partition("/")[0])
