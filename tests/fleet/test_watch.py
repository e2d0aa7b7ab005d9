from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.prometheus.receivers import NotReceivedError, OwnMetrics
from dask_efficiency.fleet.rounds.rounds import Event
from dask_efficiency.fleet.settings import WatchSettings
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
class Inbox:
    """A receiver that can be away."""

    away: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def tell(self, body: dict[str, Any], /) -> None:
        if self.away:
            raise NotReceivedError("nobody there")
        self.bodies.append(body)

    def machines(self) -> list[tuple[str, str]]:
        return [(body["status"], alert["labels"]["machine"]) for body in self.bodies for alert in body["alerts"]]


class Scene:
    """A watch of a fleet in which certain machines are found, and all that it says."""

    def __init__(self, *finds: str, **fleet: Any) -> None:
        self.fleet, self.finds, self.inbox = Fleet(**fleet), list(finds), Inbox()
        self.windows: list[tuple[MetricSeries, MetricSeries | None]] = []
        self.shown: list[Event] = []
        self.warned: list[str] = []
        ticks = iter(range(1000))
        settings = WatchSettings(window=300, history=600, webhook=self.inbox)  # type: ignore[arg-type]
        shown, warned = self.shown.append, self.warned.append
        self.watch = FleetWatch(self.fleet, self.detect, settings, shown, warn=warned, clock=lambda: float(next(ticks)))

    def detect(self, window: MetricSeries, past: MetricSeries | None, /) -> list[SlowWorker]:
        self.windows.append((window, past))
        return [SlowWorker(name, "", Cause.GPU, 1.5, 0.9, window.start, None) for name in self.finds]

    def rounds(self, *at: float) -> None:
        for each in at:
            self.watch.round(each)

    def fails(self, *at: float) -> None:
        self.fleet.away = True
        for each in at:
            with pytest.raises(OSError, match="no Prometheus"):
                self.watch.round(each)
        self.fleet.away = False

    def count(self, name: str, **labels: str) -> float | None:
        assert self.watch.metrics is not None
        return self.watch.metrics.registry.get_sample_value(f"dask_efficiency_watch_{name}", labels)


def times(series: MetricSeries | None) -> list[float]:
    assert series is not None
    return series.values[0, 0].tolist()


def test_the_first_round_pulls_all_and_later_ones_new_samples() -> None:
    scene = Scene()
    for at in (10_000, 10_100, 10_200):
        scene.rounds(at)
        window, past = scene.windows[-1]
        assert window.start == at - 300
        assert times(window) == list(range(at - 300, at + 1, 10))
        assert times(past) == list(range(at - 900, at - 300, 10))
    assert scene.fleet.asked == [(9_100, 10_000), (9_950, 10_100), (10_050, 10_200)]
    assert scene.fleet.checked == 1


def test_rounds_receivers_that_were_not_reached_and_findings_are_counted() -> None:
    pytest.importorskip("prometheus_client")
    scene = Scene("a", "c")
    scene.watch.metrics = OwnMetrics()
    scene.inbox.away = True
    scene.rounds(10_000)
    scene.fails(10_100, 10_200)
    for name, expected in (("pull_seconds", 3), ("judge_seconds", 1), ("missing_samples", 0), ("untold", 3)):
        assert scene.count(f"{name}_total") == expected
    assert [scene.count("rounds_total", outcome=outcome) for outcome in ("judged", "failed")] == [1, 2]
    assert scene.count("machines") == 3
    assert [scene.count("findings", cause=cause) for cause in ("gpu", "disk")] == [2, 0]
    assert scene.count("last_success_timestamp_seconds") == 10_000


def test_a_round_without_an_answer_begins_and_ends_nothing() -> None:
    scene = Scene("a")
    scene.rounds(10_000)
    scene.fails(10_100, 10_200, 10_300)
    scene.rounds(10_400)
    assert [event.change for event in scene.shown] == ["begins"]
    assert scene.fleet.asked[-1] == (9_950, 10_400)


def test_the_gap_that_an_absence_longer_than_everything_leaves_is_not_pulled() -> None:
    scene = Scene()
    scene.rounds(10_000, 20_000)
    assert scene.fleet.asked[-1] == (19_100, 20_000)
    assert times(scene.windows[-1][0]) == list(range(19_700, 20_001, 10))


def test_samples_of_a_machine_at_fault_do_not_become_its_past() -> None:
    scene = Scene("a", faulty_since=9_800)
    scene.rounds(10_000, 10_400, 11_000)
    window, past = scene.windows[-1]
    assert times(window) == list(range(15_700, 16_001, 10))
    assert times(past) == list(range(10_100, 10_700, 10))


def test_a_receiver_gets_one_message_when_a_finding_begins_and_one_when_it_ended() -> None:
    scene = Scene("a")
    scene.rounds(10_000, 10_100)
    scene.finds = ["b"]
    scene.rounds(10_200, 10_300)
    assert scene.inbox.machines() == [("firing", "a"), ("firing", "b"), ("resolved", "a")]


def test_a_receiver_gets_its_message_though_the_output_is_closed() -> None:
    def show(event: Event) -> None:
        raise BrokenPipeError

    scene = Scene("a")
    with pytest.raises(BrokenPipeError):
        replace(scene.watch, show=show).round(10_000)
    assert scene.inbox.machines() == [("firing", "a")]


def test_a_receiver_that_was_away_gets_its_messages_later_in_order() -> None:
    scene = Scene("a", "c")
    scene.inbox.away = True
    scene.rounds(10_000)
    scene.finds = []
    scene.rounds(10_100, 10_200)
    assert [str(event.change) for event in scene.shown] == ["begins", "begins", "ends", "ends"]
    assert scene.warned == ["nobody there; tried again in the next round"] * 3
    scene.inbox.away = False
    scene.fails(10_300)
    assert [(body["status"], len(body["alerts"])) for body in scene.inbox.bodies] == [("firing", 2), ("resolved", 2)]


def test_a_machine_that_is_gone_is_not_present_though_the_window_still_has_its_samples() -> None:
    scene = Scene()
    scene.rounds(10_000)
    scene.fleet.machines = ("a", "c")
    scene.rounds(10_100)
    assert scene.windows[-1][0].workers == ("a", "b", "c")
    assert scene.watch.present == ("a", "c")


def test_a_host_that_was_found_goes_on_until_it_is_no_longer_found() -> None:
    scene = Scene(hosts=("x", "x", "y"))
    scene.watch.detector = lambda window, past: [SlowWorker("", "x", Cause.DISK, 2.0, 0.9, 0.0, None)]
    assert [event.finding.host for event in scene.watch.round(10_000)] == ["x"]
    assert scene.watch.round(10_100) == scene.watch.round(10_200) == []


def test_an_empty_fleet_is_not_judged() -> None:
    scene = Scene(machines=())
    scene.rounds(10_000)
    assert scene.shown == scene.windows == []


@pytest.mark.parametrize("last", [80, 100])
def test_a_replay_has_rounds_at_even_distances(last: float) -> None:
    assert list(instants(0, last, every_seconds=40)) == [0, 40, 80]


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
def test_a_window_with_too_little_to_judge_has_a_reason(machines: int, samples: int, past: bool, why: str) -> None:
    series = MetricSeries.of(np.ones((1, machines, samples), np.float32), metrics=("load",), step_seconds=5.0)
    assert unjudged(series, series if past else None, continuity_seconds=270.0) == why
