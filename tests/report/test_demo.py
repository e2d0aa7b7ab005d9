import pytest
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


@pytest.mark.cluster
def test_the_shuffle_keeps_every_row(client):
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    assert demo.group_and_shuffle(client, SCALE) == 2 * 24 * 3600


@pytest.mark.cluster
def test_the_reduction_gives_the_spread_of_a_uniform_variable(client):
    assert demo.reduce_more_than_memory(client, SCALE) == pytest.approx(12**-0.5, rel=1e-3)


@pytest.mark.cluster
def test_the_network_classifies_every_row(client):
    pytest.importorskip("torch")
    assert demo.infer(client, SCALE) == 2 * 4096


@pytest.mark.cluster
def test_every_step_of_a_chain_is_done_once(client, monkeypatch):
    monkeypatch.setattr(demo, "HANDED_NBYTES", 2**16)
    chains, steps = 2 * 2, 3
    assert demo.wait_on_data(client, 0.2) == chains * steps


@pytest.mark.cluster
def test_failing_tasks_succeed_in_the_end(client):
    assert demo.retry(client, SCALE) == 4


def test_a_part_whose_modules_are_missing_is_skipped_in_a_sentence():
    part = demo.DemoPart("graphs", demo.retry, ("no_such_module",), "pip install graphs")
    assert (
        part.obstacle == "skipped, as no_such_module cannot be imported here; pip install graphs adds what is missing"
    )


@pytest.mark.cluster
def test_the_demo_reports_saves_and_says_where_to_look(tmp_path, capsys, monkeypatch):
    # These two import little, and importing is what takes fresh workers seconds.
    monkeypatch.setattr(demo, "PARTS", (demo.PARTS[1], demo.PARTS[4]))
    output = str(tmp_path / "demo.json")
    report = demo.run_demo(workers=2, threads=1, output=output, scale=SCALE)
    assert load_report(output) == report
    assert {"array reduction that spills", "failing and retried tasks"} <= {
        part for span in report.by_span for part in span.split("/")
    }
    printed = capsys.readouterr().out
    assert "can be saved" in printed or "nothing found" in printed
    assert f"dask-efficiency report {output}" in printed
