from __future__ import annotations

from pathlib import Path

import pytest
from distributed import Client

from dask_efficiency import efficiency_report, load_trace
from tests.plugin.tasks import nap
from tests.runs.trace.equal import assert_same
from tests.runs.trace.perfetto import FAULTS, query

pytestmark = pytest.mark.cluster


def test_a_recorded_run_is_explained_saved_and_drawn(client: Client, tmp_path: Path) -> None:
    with efficiency_report(name="naps", trace=True, filename=tmp_path / "run.html") as report:
        client.gather([client.submit(nap, 0.05, key=f"nap-{i}") for i in range(9)])

    path = report.critical_path()
    assert "nap" in path.by_prefix().index
    assert path.headline in " ".join(str(path).split())
    assert "Critical path: why it took so long" in (tmp_path / "run.html").read_text()

    report.trace.save(tmp_path / "run.trace")
    loaded = load_trace(tmp_path / "run.trace")
    assert_same(loaded, report.trace)

    written = loaded.to_chrome(tmp_path / "run.json")
    slices, flows, faults = query(
        tmp_path / "run.json", "select count(*) from slice", "select count(*) from flow", FAULTS
    )
    assert slices == [[written.slices + written.instants]]
    assert flows == [[written.flows]]
    assert faults == []
