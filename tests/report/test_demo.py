from types import SimpleNamespace

import pytest
from dask.utils import parse_bytes
from distributed import Client, LocalCluster

from dask_efficiency import load_report
from dask_efficiency.report import demo

SCALE = 0.04


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


PARTS = {
    "a shuffle keeps every row": (demo.group_and_shuffle, ("pandas", "pyarrow"), SCALE, 2 * 24 * 3600),
    "a reduction gives the spread of a uniform variable": (demo.reduce_more_than_memory, (), SCALE, 12**-0.5),
    "a network classifies every row": (demo.infer, ("torch",), SCALE, 2 * 4096),
    "every step of a chain is done once": (demo.wait_on_data, (), 0.2, 2 * 2 * 3),
    "tasks that failed succeed in the end": (demo.retry, (), SCALE, 4),
}


@pytest.mark.cluster
@pytest.mark.parametrize(("part", "needed", "scale", "expected"), PARTS.values(), ids=PARTS)
def test_each_part_computes_its_result(client, monkeypatch, part, needed, scale, expected):
    for name in needed:
        pytest.importorskip(name)
    monkeypatch.setattr(demo, "HANDED_NBYTES", 2**16)
    assert part(client, scale) == (expected if isinstance(expected, int) else pytest.approx(expected, rel=1e-3))


def test_the_array_is_three_times_what_each_worker_may_keep(monkeypatch):
    da = pytest.importorskip("dask.array")
    sizes = []
    monkeypatch.setattr(da.Array, "std", lambda array: sizes.append(array.nbytes) or da.zeros(()))
    demo.reduce_more_than_memory(SimpleNamespace(nthreads=lambda: {"a": 1, "b": 1}), 1.0)
    kept = demo.SPILL_TARGET * parse_bytes(demo.MEMORY_LIMIT)
    assert sizes == [pytest.approx(2 * 3 * kept, rel=0.05)]


def test_a_part_whose_modules_are_missing_is_skipped_in_a_sentence():
    part = demo.DemoPart("graphs", demo.retry, ("no_such_module",), "pip install x")
    assert part.obstacle == "skipped, as no_such_module cannot be imported here; pip install x adds what is missing"


@pytest.mark.cluster
def test_the_demo_saves_its_report_and_prints_the_command_that_shows_it(tmp_path, capsys, monkeypatch):
    # These two import little, and importing is what takes fresh workers seconds.
    monkeypatch.setattr(demo, "PARTS", (demo.PARTS[1], demo.PARTS[4]))
    output = str(tmp_path / "demo.json")
    report = demo.run_demo(workers=2, threads=1, output=output, scale=SCALE)
    assert load_report(output) == report
    spans = {part for span in report.by_span for part in span.split("/")}
    assert {"array reduction that spills", "failing and retried tasks"} <= spans
    printed = capsys.readouterr().out
    assert "can be saved" in printed or "nothing found" in printed
    assert f"dask-efficiency report {output}" in printed
