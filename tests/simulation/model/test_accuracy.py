from __future__ import annotations

from dataclasses import replace

import pytest

from dask_efficiency.simulation.model.accuracy import SEEDS, SelfReplay, SimulationRefusedError, own_job, self_replay
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import Ensemble, SimulationJob
from dask_efficiency.simulation.model.run_figures import RunFigures
from dask_efficiency.simulation.model.topology import Cable, Host, Topology
from tests.simulation.fake_engine import FakeEngine, recorded


def off_by(share: float) -> SelfReplay:
    figures = RunFigures("a run", 10.0, 1, 1, 0.5, 0.5, {})
    return SelfReplay(figures, Ensemble({0: 10.0 * (1 + share)}))


def test_the_error_has_the_sign_of_what_is_too_long() -> None:
    assert off_by(0.04).error == pytest.approx(0.04)
    assert off_by(-0.04).error == pytest.approx(-0.04)
    assert off_by(0.04).in_words == "4.0 % longer than it did"
    assert off_by(-0.04).in_words == "4.0 % less than it did"


@pytest.mark.parametrize(("share", "doubted"), [(0.049, False), (0.051, True), (-0.051, True)])
def test_above_5_percent_it_is_doubted(share: float, doubted: bool) -> None:
    assert bool(off_by(share).doubt) == doubted


@pytest.mark.parametrize("share", [0.151, -0.151])
def test_above_15_percent_it_is_refused_unless_somebody_insists(share: float) -> None:
    off_by(0.149).require(force=False)
    off_by(share).require(force=True)
    with pytest.raises(SimulationRefusedError, match=r"15\.1 % .*expected at most 15 %: force=True"):
        off_by(share).require(force=False)


def test_the_cores_of_the_scheduler_are_known_of_the_recorded_run_too() -> None:
    trace = recorded()
    hosts = {worker.host for worker in trace.workers}
    network = Topology(
        (Host("head"), *map(Host, hosts)), ("switch",), (*(Cable((h, "switch"), 1e8) for h in ("head", *hosts)),)
    )
    given = replace(ClusterSpec.from_trace(trace), network=network, scheduler_host="head", cores={"head": 2})
    own = own_job(trace, SimulationJob(given)).cluster
    assert (own.network, own.scheduler_host, own.cores) == (network, "head", {"head": 2})


def test_a_self_replay_is_of_the_recorded_cluster_with_nothing_changed() -> None:
    engine, trace = FakeEngine(1.1), recorded()
    found = self_replay(engine, trace)
    (job,) = engine.jobs
    assert [worker.name for worker in job.cluster.workers] == [worker.name for worker in trace.workers]
    assert not job.without
    assert len(found.runs.makespans) == SEEDS
    assert found.error == pytest.approx(0.1, abs=0.05)
