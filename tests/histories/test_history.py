import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dask_efficiency
from dask_efficiency.accounts.metered import AT_PEAK, BYTES, IN_MEMORY, MEMORY, PROCESS
from dask_efficiency.histories import RunHistory
from dask_efficiency.histories.reasons import reasons
from dask_efficiency.histories.sections import what_changed
from dask_efficiency.report.values import MeteredRow
from tests.histories.nights import night, saved

GIB = 1 << 30


def weeks(folder: Path, *, seed: int = 1, **later: Any) -> RunHistory:
    """Fifteen nights of a minute, and five later ones with something else."""
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.02, 20))
    wall = later.pop("wall", 60.0)
    nights = [night(i, (wall if i >= 15 else 60.0) * noise[i], **(later if i >= 15 else {})) for i in range(20)]
    return dask_efficiency.history(saved(folder, nights))


def test_the_first_slower_run_is_named_with_what_came_with_it(tmp_path: Path) -> None:
    found = weeks(tmp_path, wall=78.0, spill=80.0, environment={"dask": "2026.8.0"})
    (change,) = found.changes
    assert (change.first.path, change.since, change.is_worse) == (str(tmp_path / "015.json"), 5, True)
    assert what_changed(change).startswith("nightly.py got 28 %")
    assert what_changed(change).endswith(" slower with the run of 2026-11-16 03:00 (5 runs since)")
    losses, version = reasons(change)
    assert losses.startswith("grown: spilling to disk (10.0 -> 80.0 thread-seconds")
    assert version == "dask unknown -> 2026.8.0"
    assert found.headline == what_changed(change)


def test_other_workers_tasks_and_commits_are_reasons(tmp_path: Path) -> None:
    def of(number: int) -> dict[str, Any]:
        later = number >= 10
        return {
            "attendance": {"workers": 38 if later else 40},
            "tasks": {"succeeded": 400 if later else 100},
            "labels": {"data": "v2" if later else "v1", "always": "x"},
            "environment": {"commit": f"{number:02x}" * 20},
        }

    nights = [night(i, 90.0 if i >= 10 else 60.0, **of(i)) for i in range(20)]
    (change,) = dask_efficiency.history(saved(tmp_path, nights)).changes
    found = reasons(change)
    assert "38 workers instead of 40" in found
    assert "400 tasks succeeded instead of 100" in found
    assert found[-2] == "data v1 -> v2"
    assert found[-1] == "commit 0909090909 -> 0a0a0a0a0a"


def test_the_version_before_a_change_is_that_of_the_last_run_before_it(tmp_path: Path) -> None:
    versions = [*"112211", *"33333"]
    nights = [night(i, 90.0 if dask == "3" else 60.0, environment={"dask": dask}) for i, dask in enumerate(versions)]
    (change,) = dask_efficiency.history(saved(tmp_path, nights)).changes
    assert reasons(change)[-1] == "dask 1 -> 3"


def test_memory_is_a_figure_of_its_own(tmp_path: Path) -> None:
    nights = [night(i, peak=(6 if i >= 12 else 4) * GIB) for i in range(20)]
    (change,) = dask_efficiency.history(saved(tmp_path, nights)).changes
    assert change.figure == "worker_peak_bytes"
    assert what_changed(change).startswith("nightly.py got 50 % hungrier with the run of ")


def test_what_of_the_memory_grew_is_a_reason(tmp_path: Path) -> None:
    def of(number: int) -> dict[str, Any]:
        held = 3 if number >= 12 else 1
        rows = [
            MeteredRow("w0", MEMORY, "", "", PROCESS, BYTES, (held + 2) * GIB),
            MeteredRow("w0", MEMORY, "", "merge", IN_MEMORY + AT_PEAK, BYTES, held * GIB),
        ]
        return {"metered": rows}

    (change,) = dask_efficiency.history(saved(tmp_path, [night(i, **of(i)) for i in range(20)])).changes
    assert change.figure == "worker_peak_bytes"
    assert reasons(change) == ("results of merge at the peak 1.0 GiB -> 3.0 GiB",)


def test_what_got_better_comes_last_and_is_no_headline(tmp_path: Path) -> None:
    found = weeks(tmp_path, wall=40.0)
    assert [change.is_worse for change in found.changes] == [False]
    assert found.headline == "No change for the worse in 20 runs"


def test_what_was_mended_long_ago_is_no_headline(tmp_path: Path) -> None:
    nights = [night(i, 90.0 if 12 <= i < 18 else 60.0) for i in range(30)]
    found = dask_efficiency.history(saved(tmp_path, nights))
    assert found.headline == "No lasting change for the worse in 30 runs"
    slower = "nightly.py got 50 % slower with the run of 2026-11-13 03:00 (mended with the run of 2026-11-19 03:00)"
    assert what_changed(found.changes[0]) == slower
    again = saved(tmp_path, [*nights, *(night(i, 75.0) for i in range(30, 36))])
    assert dask_efficiency.history(again).headline == (
        "nightly.py got 25 % slower with the run of 2026-12-01 03:00 (6 runs since)"
    )


def test_runs_of_other_names_and_labels_are_kept_apart(tmp_path: Path) -> None:
    nights = [night(i, 60.0, labels={"branch": "main"}) for i in range(12)]
    nights += [night(i, 200.0, labels={"branch": "try"}) for i in range(12, 18)]
    nights += [night(i, 15.0, name="other.py", labels={"n": "1"}) for i in range(4)]
    folder = saved(tmp_path, nights)
    assert [one.name for one in dask_efficiency.history(folder).series] == ["nightly.py", "other.py"]
    assert len(dask_efficiency.history(folder, labels={"branch": "main"}).runs) == 12
    assert not dask_efficiency.history(folder, labels={"branch": "main"}).changes
    assert len(dask_efficiency.history(folder, name="other.py").runs) == 4
    assert len(dask_efficiency.history(folder, labels={"n": 1}).runs) == 4  # type: ignore[dict-item]  # kept as a text
    with pytest.raises(FileNotFoundError, match="22 reports, and none of that name"):
        dask_efficiency.history(folder, name="third.py")


def test_runs_that_ended_early_are_listed_and_do_not_count(tmp_path: Path) -> None:
    nights = [night(i, 60.0 if i % 2 else 10.0, ended_by="" if i % 2 else "KeyError: 'x'") for i in range(24)]
    found = dask_efficiency.history(saved(tmp_path, nights))
    assert (len(found.runs), found.changes) == (24, ())
    assert "12 runs ended early" in str(found)


def test_a_run_that_is_worse_than_those_before_it_vary_is_told(tmp_path: Path) -> None:
    noise = np.exp(np.random.default_rng(3).normal(0, 0.02, 12))
    nights = [night(i, 60.0 * noise[i], peak=GIB) for i in range(12)]
    folder = saved(tmp_path, [*nights, night(12, 75.0, peak=GIB)])
    (worse,) = dask_efficiency.history(folder).worse(0.1)
    assert (worse.figure, worse.run.path) == ("wall_clock_seconds", str(folder / "012.json"))
    assert dask_efficiency.history(folder).worse(0.5) == ()
    saved(tmp_path, [*nights, night(12, 60.0, peak=2 * GIB)])
    assert [one.figure for one in dask_efficiency.history(folder).worse(0.1)] == ["worker_peak_bytes"]


def test_a_run_that_takes_as_much_as_is_allowed_is_not_worse(tmp_path: Path) -> None:
    found = dask_efficiency.history(saved(tmp_path, [*(night(i) for i in range(12)), night(12, 66.0)]))
    assert found.worse(Fraction(1, 10)) == ()
    assert len(found.worse(Fraction(9, 100))) == 1


def test_a_run_within_what_those_before_it_vary_by_is_not_worse(tmp_path: Path) -> None:
    walls = [60.0, 90.0, 70.0, 85.0, 62.0, 88.0, 66.0, 80.0, 88.0]
    assert dask_efficiency.history(saved(tmp_path, [night(i, wall) for i, wall in enumerate(walls)])).worse(0.1) == ()


def test_a_run_is_judged_since_the_last_change_and_with_five_runs_before_it(tmp_path: Path) -> None:
    accepted = [night(i, 60.0 if i < 10 else 90.0) for i in range(20)]
    assert dask_efficiency.history(saved(tmp_path / "accepted", accepted)).worse(0.1) == ()
    few = [night(i, 60.0 if i < 4 else 90.0) for i in range(5)]
    assert dask_efficiency.history(saved(tmp_path / "few", few)).worse(0.1) == ()
    failed = [*(night(i) for i in range(10)), night(10, 90.0, ended_by="MemoryError")]
    assert dask_efficiency.history(saved(tmp_path / "failed", failed)).worse(0.1) == ()


def test_reports_that_are_gone_leave_the_change(tmp_path: Path) -> None:
    found = weeks(tmp_path, wall=90.0)
    (change,) = found.changes
    Path(change.first.path).unlink()
    assert reasons(change)[0].startswith("the reports could not be compared: ")


def test_a_frame_has_a_row_for_each_run_with_its_labels(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    nights = [night(0, labels={"branch": "main"}, price_per_worker_hour=6.0), night(1)]
    frame = dask_efficiency.history(saved(tmp_path, nights)).to_frame()
    assert frame["wall_clock_seconds"].tolist() == [60.0, 60.0]
    assert frame["label:branch"].tolist() == ["main", ""]
    assert frame["spill"].tolist() == [10.0, 10.0]
    assert math.isclose(frame["cost"][0], 0.1, rel_tol=0.01)
    assert math.isnan(frame["worker_peak_bytes"][0])
