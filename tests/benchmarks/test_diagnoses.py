"""First screens of the recorded workloads of ``benchmarks/diagnoses.py``: the cause is named, and nothing misleads.

``python -m benchmarks.findings --scale 0.4 --save tests/data/diagnoses`` recorded them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.diagnoses import DIAGNOSES, Diagnosis, verdict_of
from benchmarks.workload_runs import Ran
from dask_efficiency.accounts.buckets import Bucket

RECORDED = Path(__file__).parents[1] / "data" / "diagnoses"


@pytest.mark.parametrize("diagnosis", DIAGNOSES, ids=lambda diagnosis: diagnosis.name)
def test_the_first_screen_of_a_run_names_the_cause_and_does_not_mislead(diagnosis: Diagnosis) -> None:
    verdict = verdict_of(diagnosis, Ran.load(RECORDED, diagnosis.name))
    assert verdict.misleads == []
    assert verdict.named


def test_sleep_is_distinguished_from_the_wait_for_a_lock_before_it() -> None:
    report = Ran.load(RECORDED, "lock_and_sleep").report
    slept, locked = (report.causes_ns(Bucket.THREAD_NONCPU)[cause] / 1e9 for cause in ("sleep", "lock"))
    assert slept == pytest.approx(12 * 0.24, rel=0.05)
    whole = report.breakdown[Bucket.THREAD_NONCPU]
    assert locked == pytest.approx(whole - 12 * 0.24, rel=0.15)  # less the GIL and cores


def test_every_diagnosis_has_a_cause_to_name_or_a_sentence_that_misleads() -> None:
    """The judge itself: each row names at least one sentence that is untrue of it, or a cause to be named."""
    assert all(diagnosis.misleads or diagnosis.names for diagnosis in DIAGNOSES)


@pytest.mark.parametrize("diagnosis", DIAGNOSES, ids=lambda diagnosis: diagnosis.name)
def test_promises_for_recorded_runs_leave_their_ideal_runtime(diagnosis: Diagnosis) -> None:
    report = Ran.load(RECORDED, diagnosis.name).report
    most = report.cluster_seconds - report.ideal_seconds
    for one in report.findings:
        if one.kind not in ("client", "no-workers") and one.saves_seconds is not None:
            assert one.saves_seconds <= most + 1e-9 or one.kind == "repeats"
            assert one.saves_interval is None or one.saves_interval[1] <= most + 1e-9
    assert all(saved.seconds <= most for saved in report.savings.values())
