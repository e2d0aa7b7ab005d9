"""The loop of a watch: what is pulled in a round, who is told, and what a failing round changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.prometheus.receivers import NotReceivedError
from dask_efficiency.fleet.rounds.rounds import Event
from dask_efficiency.fleet.watch import FleetWatch, instants, unjudged


@dataclass
class Fleet:
    """A source whose samples are their own times; it can be away."""

    name: str = "http://prometheus"
    step_seconds: float = 10.0
    asked: list[tuple[float, float]] = field(default_factory=list)
    checked: int = 0
    away: bool = False
    machines: tuple[str, ...] = ("a", "b", "c")
    hosts: tuple[str, ...] = ()
    #: From then on, the first machine is ahead of its time.
    faulty_since: float = np.inf

    def pull(self, *, start: float, stop: float) -> MetricSeries:
        self.asked.append((start, stop))
        if self.away:
            raise OSError("no Prometheus answers")
        at = np.arange(np.ceil(start / 10) * 10, stop + 1, 10)
        values = np.broadcast_to(at, (1, len(self.machines), len(at))).astype(np.float32)
        values[:, :1, at >= self.faulty_since] += 5_000
        alike = ("",) * len(self.machines)
        return MetricSeries(("time",), self.machines, alike, self.hosts or alike, float(at[0]), 10.0, values)

    def check(self, series: MetricSeries, /) -> None:
        self.checked += 1


@dataclass
class Judge:
    """A detector that finds what it is told, and remembers what it saw."""

    finds: list[str] = field(default_factory=list)
    saw: list[tuple[MetricSeries, MetricSeries | None]] = field(default_factory=list)

    def __call__(self, window: MetricSeries, past: MetricSeries | None, /) -> list[SlowWorker]:
        self.saw.append((window, past))
        return [SlowWorker(name, "", Cause.GPU, 1.5, 0.9, window.start, None) for name in self.finds]


@dataclass
class Told:
    """A receiver that can be away, and an observer."""

    away: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)

    def tell(self, body: dict[str, Any], /) -> None:
        if self.away:
            raise NotReceivedError("nobody there")
        self.bodies.append(body)

    def machines(self) -> list[tuple[str, str]]:
        return [(body["status"], alert["labels"]["machine"]) for body in self.bodies for alert in body["alerts"]]

    def judged(self, *, at: float, pull: float, judge: float, machines: int, missing: int) -> None:
        self.counted.append(f"judged {machines} machines, {missing} missing, {pull:g} + {judge:g} s")

    def failed(self, *, pull: float) -> None:
        self.counted.append("failed")

    def untold(self) -> None:
        self.counted.append("untold")

    def ongoing(self, findings: tuple[SlowWorker, ...], /) -> None:
        self.counted.append(f"{len(findings)} ongoing")


@dataclass
class Scene:
    fleet: Fleet = field(default_factory=Fleet)
    judge: Judge = field(default_factory=Judge)
    told: Told = field(default_factory=Told)
    shown: list[Event] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)

    def watch(self) -> FleetWatch:
        ticks = iter(range(1000))
        return FleetWatch(
            source=self.fleet,
            detector=self.judge,
            window_seconds=300,
            history_seconds=600,
            show=self.shown.append,
            warn=self.warned.append,
            clock=lambda: float(next(ticks)),
            receivers=(self.told,),
            observers=(self.told,),
        )


def test_the_first_round_pulls_all_and_later_ones_what_is_new() -> None:
    scene = Scene()
    watch = scene.watch()
    for at in (10_000, 10_100, 10_200):
        watch.round(at)
        window, past = scene.judge.saw[-1]
        assert past is not None
        assert window.start == at - 300
        np.testing.assert_array_equal(window.values[0, 0], np.arange(at - 300, at + 1, 10))
        np.testing.assert_array_equal(past.values[0, 0], np.arange(at - 900, at - 300, 10))
    assert scene.fleet.asked == [(9_100, 10_000), (9_950, 10_100), (10_050, 10_200)]
    assert scene.fleet.checked == 1
    assert scene.told.counted[:2] == ["judged 3 machines, 0 missing, 1 + 1 s", "0 ongoing"]


def test_a_round_without_an_answer_begins_and_ends_nothing() -> None:
    scene = Scene(judge=Judge(["a"]))
    watch = scene.watch()
    watch.round(10_000)
    scene.fleet.away = True
    for at in (10_100, 10_200, 10_300):
        with pytest.raises(OSError, match="no Prometheus"):
            watch.round(at)
    scene.fleet.away = False
    watch.round(10_400)
    assert [event.change for event in scene.shown] == ["begins"]
    assert scene.fleet.asked[-1] == (9_950, 10_400)
    assert scene.told.counted.count("failed") == 3


def test_the_gap_that_an_absence_longer_than_everything_leaves_is_not_pulled() -> None:
    scene = Scene()
    watch = scene.watch()
    watch.round(10_000)
    watch.round(20_000)
    assert scene.fleet.asked[-1] == (19_100, 20_000)
    np.testing.assert_array_equal(scene.judge.saw[-1][0].values[0, 0], np.arange(19_700, 20_001, 10))


def test_what_a_machine_does_while_at_fault_does_not_become_its_past() -> None:
    scene = Scene(fleet=Fleet(faulty_since=9_800), judge=Judge(["a"]))
    watch = scene.watch()
    for at in (10_000, 10_400, 11_000):
        watch.round(at)
    window, past = scene.judge.saw[-1]
    assert past is not None
    np.testing.assert_array_equal(window.values[0, 0], np.arange(10_700, 11_001, 10) + 5_000)
    np.testing.assert_array_equal(past.values[0, 0], np.arange(10_100, 10_700, 10))


def test_a_receiver_is_told_once_that_it_begins_and_once_that_it_ended() -> None:
    scene = Scene(judge=Judge(["a"]))
    watch = scene.watch()
    watch.round(10_000)
    watch.round(10_100)
    scene.judge.finds = ["b"]
    watch.round(10_200)
    watch.round(10_300)
    assert scene.told.machines() == [("firing", "a"), ("firing", "b"), ("resolved", "a")]


def test_a_receiver_is_told_though_nobody_reads_what_is_shown() -> None:
    def show(event: Event) -> None:
        raise BrokenPipeError

    scene = Scene(judge=Judge(["a"]))
    with pytest.raises(BrokenPipeError):
        replace(scene.watch(), show=show).round(10_000)
    assert scene.told.machines() == [("firing", "a")]


def test_a_receiver_that_was_away_is_told_later_in_order() -> None:
    scene = Scene(judge=Judge(["a", "c"]), told=Told(away=True))
    watch = scene.watch()
    watch.round(10_000)
    scene.judge.finds = []
    watch.round(10_100)
    watch.round(10_200)
    assert [str(event.change) for event in scene.shown] == ["begins", "begins", "ends", "ends"]
    assert scene.warned == ["nobody there; tried again in the next round"] * 3
    scene.told.away = False
    scene.fleet.away = True
    with pytest.raises(OSError, match="no Prometheus"):
        watch.round(10_300)
    assert [(body["status"], len(body["alerts"])) for body in scene.told.bodies] == [("firing", 2), ("resolved", 2)]
    assert scene.told.counted.count("untold") == 3


def test_who_is_gone_is_known_at_once_though_the_window_still_has_its_samples() -> None:
    scene = Scene()
    watch = scene.watch()
    watch.round(10_000)
    assert watch.present == ("a", "b", "c")
    scene.fleet.machines = ("a", "c")
    watch.round(10_100)
    assert watch.window is not None
    assert watch.window.workers == ("a", "b", "c")
    assert watch.present == ("a", "c")


def test_a_host_that_was_found_goes_on_until_it_is_no_longer_found() -> None:
    scene = Scene(fleet=Fleet(hosts=("x", "x", "y")))
    watch = replace(scene.watch(), detector=lambda window, past: [SlowWorker("", "x", Cause.DISK, 2.0, 0.9, 0.0, None)])
    assert [event.finding.host for event in watch.round(10_000)] == ["x"]
    assert watch.round(10_100) == watch.round(10_200) == []


def test_an_empty_fleet_is_not_judged() -> None:
    scene = Scene(fleet=Fleet(machines=()))
    assert scene.watch().round(10_000) == []
    assert scene.judge.saw == []


def test_a_replay_has_rounds_at_even_distances() -> None:
    assert list(instants(0, 100, every_seconds=40)) == [0, 40, 80]
    assert list(instants(0, 80, every_seconds=40)) == [0, 40, 80]


@pytest.mark.parametrize(
    ("machines", "samples", "past", "why"),
    [
        (0, 100, False, "nobody reported anything"),
        (2, 100, False, "2 reported, of which 2 can be compared; expected 3 at least"),
        (3, 30, False, "what was reported covers 150 s; expected 390 s at least"),
        (3, 30, True, "what was reported covers 150 s; expected 270 s at least"),
        (3, 60, True, ""),
        (3, 80, False, ""),
    ],
)
def test_too_little_to_judge_is_told(machines: int, samples: int, past: bool, why: str) -> None:
    series = MetricSeries.of(np.ones((1, machines, samples), np.float32), metrics=("load",), step_seconds=5.0)
    assert unjudged(series, series if past else None) == why
