"""Collections that many tasks take as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from dask_efficiency import EfficiencyReport
from dask_efficiency.report.findings import find
from dask_efficiency.report.values import MeteredRow
from tests.report.samples import report_of, seconds, skew


def run(*, reads: float = 60 * 150e6, held: float = 5.0, **fields: Any) -> EfficiencyReport:
    """Two threads for 10 s, of which 60 tasks of ``augment`` read results that one task put together."""
    whole = skew(count=1, median_seconds=0.5, max_seconds=0.5, median_bytes=150e6, max_bytes=150e6)
    given: dict[str, Any] = {
        "by_prefix": {"augment": seconds(thread_cpu=held), "repartitiontofewer": seconds(thread_cpu=1.0)},
        "skew": {"augment": skew(count=60, max_seconds=0.2, max_bytes=24.0), "repartitiontofewer": whole},
        "metered": (MeteredRow("w0", "execute", "", "augment", "memory-read", "bytes", reads),),
        "computed_by": {"augment": "`dask.compute(*sums)` in augment.py:79"},
        "nthreads": {"w0": 2},
        "cluster_seconds": 10.0,
        "window_seconds": 10.0,
    }
    return report_of(seconds(thread_cpu=held + 1.0, idle=19.0 - held), **(given | fields))


def test_tasks_that_take_all_of_a_collection_are_a_finding_with_its_size_and_the_line() -> None:
    first = find(run(held=14.0))[0]
    assert (first.kind, first.saves_seconds) == ("whole-inputs", None)
    assert first.where == (
        "75 % of all thread time: each of 60 tasks of augment takes 143 MiB of repartitiontofewer, "
        "computed by `dask.compute(*sums)` in augment.py:79"
    )
    assert first.evidence["wall_clock_seconds"] == pytest.approx(0.7 * 15.0 / 2)


def test_parts_few_tasks_small_wholes_and_what_takes_little_time_are_none() -> None:
    small = skew(count=1, max_bytes=10e6, median_bytes=10e6)
    few = {**run().skew, "augment": skew(count=3)}
    for other in (
        run(reads=100e6),
        run(held=2.0),
        run(skew={**run().skew, "repartitiontofewer": small}),
        run(skew=few),
        run(skew={"augment": run().skew["augment"], "concat": run().skew["repartitiontofewer"]}),
        run(metered=()),
    ):
        assert "whole-inputs" not in {one.kind for one in find(other)}


def test_what_a_task_does_with_a_whole_of_its_own_is_not_the_whole_s_price() -> None:
    own = {**run().skew, "repartitiontofewer": skew(count=60, median_bytes=150e6, max_bytes=150e6)}
    computing = run(held=14.0, skew=own)
    assert "whole-inputs" not in {one.kind for one in find(computing)}
    putting = {"augment": seconds(thread_cpu=4.0), "repartitiontofewer": seconds(thread_cpu=11.0)}
    assert find(run(held=14.0, skew=own, by_prefix=putting))[0].kind == "whole-inputs"
