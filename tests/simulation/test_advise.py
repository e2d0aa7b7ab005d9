import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dask_efficiency import ClusterSpec, RunTrace, advise
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.cli import main
from dask_efficiency.simulation import Advice, SimulationRefusedError
from dask_efficiency.simulation.advise import _unknown
from dask_efficiency.simulation.model.advice import AS_IT_WAS, FASTEST, Limits, Setting, TasksByPrefix
from dask_efficiency.simulation.model.ensemble import Ensemble, SeededJob, Wanted
from tests.simulation.fake_engine import FakeEngine, recorded
from tests.simulation.simulation_samples import simulated_by


@pytest.fixture(autouse=True)
def engine() -> Iterator[FakeEngine]:
    with simulated_by(FakeEngine()) as engine:
        yield engine


def test_it_tries_settings_and_shows_those_that_are_worth_it(engine: FakeEngine) -> None:
    found = advise(recorded(), price_per_worker_hour=3600.0, seeds=2)
    assert isinstance(found, Advice)
    assert len({json.dumps(job.to_dict(), sort_keys=True) for job in engine.jobs}) >= found.tried > 3
    own = found.own
    assert found.predictions[FASTEST].makespan_seconds < own.makespan_seconds
    seconds, low, high = found.saved(FASTEST)
    assert 0 < low < seconds < high
    # Four workers for as long as the run.
    assert found.money(AS_IT_WAS) == pytest.approx(4 * own.makespan_seconds)
    assert "LocalCluster(n_workers=" in str(found)
    assert "KubeCluster(n_workers=" in str(found)
    rows = found.to_dict()["settings"]
    assert rows[0]["setting"] == AS_IT_WAS
    assert len(found.to_frame()) == len(rows) == len(found.settings)
    assert found.headline in str(found).replace("\n", " ")


def test_larger_partitions_have_numbers_and_the_change() -> None:
    found = advise(recorded(), seeds=2)
    text = str(replace(found, settings={name: replace(one, chunks=4) for name, one in found.settings.items()}))
    assert "partitions 4 times as large, from 63 tasks of" in " ".join(text.split())
    assert "lists of 4 items" in " ".join(text.split())


def test_of_several_graphs_their_number_is_told_and_none_of_partitions() -> None:
    found = advise(recorded(), seeds=2)
    blocks = TasksByPrefix({"read": Skew(1000, 0.004, 0.006, 0.01, "('read', 3)", median_bytes=2.0**20)}, 4.0, 10)
    larger = {name: replace(one, chunks=6) for name, one in found.settings.items()}
    text = " ".join(str(replace(found, tasks=blocks, settings=larger)).split())
    assert "6 times as large, from 1000 tasks of 4.0 ms and 1.0 MiB in 10 graphs: npartitions= of a dataframe" in text
    text = " ".join(str(replace(found, tasks=replace(blocks, rounds=1), settings=larger)).split())
    assert "from 1000 tasks of 4.0 ms and 1.0 MiB: npartitions=167 of a dataframe" in text


def test_more_memory_is_named_and_its_price_is_not_known() -> None:
    found = advise(recorded(), seeds=2)
    own = replace(found.settings[AS_IT_WAS], memory_limit=2**30)
    more = replace(own, memory_limit=2**31)
    settings = {AS_IT_WAS: own, FASTEST: more}
    text = replace(found, settings=settings).headline
    assert text.startswith("4 workers of 2 threads, 2.0 GiB each: ")
    assert text.endswith("of its thread-seconds")
    notes = _unknown(ClusterSpec.from_trace(recorded()), own, Limits(), settings.values())
    assert "Cost is that of threads: the price of more memory for each of them is not known." in notes


def test_a_worker_that_spilled_below_its_limit_has_no_note_on_a_lower_one() -> None:
    cluster, own = ClusterSpec.from_trace(recorded()), Setting(4, 1, 2**32)
    for memory, told in ((2**31, False), (2**33, True)):
        notes = _unknown(cluster, own, Limits(memory=memory), ())
        assert any("Workers spilled" in note for note in notes) == told


def test_what_a_trace_does_not_tell_is_said() -> None:
    found = advise(recorded(), seeds=2)
    assert any("need of memory while they run" in note for note in found.notes)
    assert any("cores of their own" in note for note in found.notes)
    assert found.money(AS_IT_WAS) is None


def test_a_price_below_0_is_refused() -> None:
    with pytest.raises(ValueError, match="price_per_worker_hour is -1"):
        advise(recorded(), price_per_worker_hour=-1)


def test_the_command_prints_the_advice(tmp_path: Path) -> None:
    recorded().save(tmp_path / "run.trace")
    page = tmp_path / "advice.html"
    arguments = ["advise", str(tmp_path / "run.trace"), "--price", "0.4", "--seeds", "2"]
    result = CliRunner().invoke(main, [*arguments, "--html", str(page)])
    assert result.exit_code == 0
    assert "LocalCluster" in page.read_text()
    figures = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert figures["price_per_worker_hour"] == 0.4
    assert figures["settings"][0]["lines"][0].startswith("`cluster = LocalCluster(n_workers=4")


def test_a_run_as_good_as_it_gets_is_left_as_it_was() -> None:
    found = advise(recorded(), seeds=2)
    alone = replace(found, settings={AS_IT_WAS: found.settings[AS_IT_WAS]}, predictions={AS_IT_WAS: found.own})
    assert alone.headline.startswith("As it was: none of")
    assert alone.fastest == alone.cheapest == found.settings[AS_IT_WAS]


def test_a_run_that_is_not_simulated_well_is_refused_before_the_search() -> None:
    with simulated_by(FakeEngine(factor=2.0)) as engine, pytest.raises(SimulationRefusedError):
        advise(recorded(), seeds=2)
    assert len(engine.jobs) == 1


class Engine(FakeEngine):
    """Settings stand still, or are slower, in the runs that are shown."""

    def __init__(self, **shown: Any) -> None:
        super().__init__()
        self.shown = shown

    def __call__(self, trace: RunTrace, jobs: Sequence[SeededJob], **options: Any) -> Generator[Ensemble, None, None]:
        for seeded, runs in zip(jobs, super().__call__(trace, jobs, **options), strict=True):
            is_shown = seeded.wanted is Wanted.TRACE and seeded.may_stand_still
            yield replace(runs, **self.shown) if is_shown else runs


@pytest.mark.parametrize("shown", [{"stands_still": "paused"}, {"overfull": 0.5}, {"makespans": {0: 1e3, 1: 1e3}}])
def test_settings_that_further_runs_do_not_confirm_are_not_shown(shown: dict[str, Any]) -> None:
    assert FASTEST in advise(recorded(), seeds=2).settings
    with simulated_by(Engine(**shown)):
        assert [*advise(recorded(), seeds=2).settings] == [AS_IT_WAS]
