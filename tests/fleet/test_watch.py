from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.assembly import outlier_detector
from dask_efficiency.fleet.outliers.metric_series import MetricSeries, metric_series_of
from dask_efficiency.fleet.prometheus.receivers import NotReceivedError, OwnMetrics
from dask_efficiency.fleet.rounds.exclusions import LeavingOut
from dask_efficiency.fleet.rounds.rounds import Event
from dask_efficiency.fleet.settings import WatchSettings
from dask_efficiency.fleet.watch import FleetWatch, instants, unjudged
from tests.fleet.outliers.shapes import tables


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

    def pull(self, *, start: float, stop: float, leave_out: LeavingOut | None = None) -> MetricSeries:
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
        chosen = WatchSettings(window=300, history=600, webhook=self.inbox)  # type: ignore[arg-type]
        shown, warned = self.shown.append, self.warned.append
        self.watch = FleetWatch(self.fleet, self.detect, chosen, shown, warn=warned, clock=lambda: float(next(ticks)))

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


def test_a_machine_that_is_at_fault_soon_after_it_has_joined_is_found_for_as_long_as_it_is() -> None:
    at = np.arange(0.0, 14_400.0, 15.0)
    values = np.random.default_rng(0).normal(10, 0.5, (1, 8, len(at))).astype(np.float32)
    values[0, 3, at < 6_300] = np.nan
    values[0, 3, at >= 6_900] += 8
    series = MetricSeries.of(values, metrics=["load"], step_seconds=15.0)
    shown: list[Event] = []
    watch = FleetWatch(recorded(series), outlier_detector(), WatchSettings(), shown.append, print, clock=lambda: 0.0)
    for last in range(4_800, 14_400, 480):
        watch.round(last)
    assert [(str(event.change), event.finding.worker, event.at) for event in shown] == [("begins", "3", 7_200)]


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


def test_a_machine_that_the_detector_fails_on_is_left_out_told_once_and_counted() -> None:
    pytest.importorskip("prometheus_client")
    scene = Scene("a", machines=tuple("abcdefgh"))
    scene.watch.metrics, found = OwnMetrics(), scene.watch.detector

    def detect(window: MetricSeries, past: MetricSeries | None, /) -> list[SlowWorker]:
        if "c" in window.workers:
            raise IndexError("index 0 is out of bounds")
        return found(window, past)

    scene.watch.detector = detect
    scene.rounds(10_000, 10_100)
    (line,) = scene.warned
    assert line.startswith("goes on without the machine c: IndexError: index 0 is out of bounds (test_watch.py:")
    assert [event.finding.worker for event in scene.shown] == ["a"]
    assert [scene.count("left_out_total", about=about) for about in ("machine", "metric", "event")] == [2, 0, 0]
    assert [scene.count("rounds_total", outcome=outcome) for outcome in ("judged", "failed")] == [2, 0]


@pytest.mark.parametrize("error", [IndexError, MemoryError, ZeroDivisionError, RecursionError])
@pytest.mark.parametrize("where", ["pull", "detector"])
def test_a_round_that_fails_begins_and_ends_nothing_and_the_next_goes_on(where: str, error: type[Exception]) -> None:
    pytest.importorskip("prometheus_client")

    def fail(*_: object, **__: object) -> Any:
        raise error("wrong")

    scene = Scene("a")
    scene.watch.metrics = OwnMetrics()
    scene.rounds(10_000)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(*((scene.fleet, where) if where == "pull" else (scene.watch, where)), fail)
        for at in (10_100, 10_200, 10_300):
            assert scene.watch.round(at) == []
            assert scene.watch.unjudged.startswith(f"the round failed: {error.__name__}: wrong (test_watch.py:")
            assert scene.watch.found == ()
    scene.rounds(10_400)
    assert not scene.watch.unjudged
    assert [event.change for event in scene.shown] == ["begins"]
    assert [scene.count("rounds_total", outcome=outcome) for outcome in ("judged", "failed")] == [2, 3]
    assert scene.fleet.checked == 1


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_ends_the_watch(ending: type[BaseException]) -> None:
    def fail(*_: object) -> Any:
        raise ending

    scene = Scene()
    scene.watch.detector = fail
    with pytest.raises(ending):
        scene.rounds(10_000)


def test_a_receiver_that_fails_in_any_way_is_tried_again() -> None:
    def fail(body: dict[str, Any]) -> None:
        raise RuntimeError("can't start new thread")

    scene = Scene("a")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scene.inbox, "tell", fail)
        scene.rounds(10_000)
    (line,) = scene.warned
    assert line.startswith("RuntimeError: can't start new thread (test_watch.py:")
    assert line.endswith("tried again in the next round")
    scene.rounds(10_100)
    assert scene.inbox.machines() == [("firing", "a")]


def test_an_event_that_no_message_can_be_made_of_holds_no_other_up() -> None:
    scene = Scene("a")
    scene.watch.detector = lambda window, past: [SlowWorker("a", "", Cause.GPU, 1.5, 0.9, 1e300, None)]
    scene.rounds(10_000)
    assert [line.split(": ")[0] for line in scene.warned] == ["goes on without the event a"]
    scene.watch.detector = scene.detect
    scene.finds = ["b"]
    scene.rounds(10_100)
    assert scene.inbox.machines() == [("firing", "b")]


def test_an_event_that_cannot_be_shown_is_told_and_the_next_is_shown() -> None:
    def show(event: Event) -> None:
        if event.finding.worker == "a":
            raise ValueError("no line")
        scene.shown.append(event)

    scene = Scene("a", "b")
    scene.watch.show = show
    scene.rounds(10_000)
    assert [event.finding.worker for event in scene.shown] == ["b"]
    assert len(scene.warned) == 1


def recorded(series: MetricSeries) -> Any:
    """Source of a fleet's past."""
    step = series.step_seconds

    def pull(*, start: float, stop: float, leave_out: LeavingOut | None = None) -> MetricSeries:
        first, last = round(start / step), round(stop / step)
        part = replace(series, start=first * step, values=series.values[:, :, first:last])
        return part.only(np.flatnonzero(np.isfinite(part.values).any(axis=(0, 2))))

    return SimpleNamespace(name="", step_seconds=step, pull=pull, check=lambda series: None)


INSTANTS = range(4500, 30_000, 480)


def test_machines_that_share_no_job_are_not_named_and_it_is_told_once() -> None:
    random = np.random.default_rng(0)
    load = np.repeat(random.lognormal(3, 1, (2, 8, 60)), 60, axis=2)  # each with a load of its own for ten minutes
    series = MetricSeries.of(load * random.normal(1, 0.02, load.shape), metrics=("cpu", "net"), step_seconds=10.0)

    source, detector, shown, warned = recorded(series), outlier_detector(), [], []
    pull = source.pull
    alone = [detector(pull(start=at - 900, stop=at), pull(start=at - 4500, stop=at - 900)) for at in INSTANTS]
    assert sum(map(bool, alone)) > len(alone) / 4
    watch = FleetWatch(source, detector, WatchSettings(), shown.append, warned.append, clock=lambda: 0.0)
    pytest.importorskip("prometheus_client")
    watch.metrics = OwnMetrics()
    for at in INSTANTS:
        watch.round(at)
    assert watch.metrics.registry.get_sample_value("dask_efficiency_watch_bounded") == 1
    assert shown == []
    (line,) = warned
    assert line.startswith("these machines seem to share no job: 3 of 8 left their own past by ")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(tables())
def test_a_watch_of_a_fleet_of_any_shape_fails_in_no_round(table: pd.DataFrame) -> None:
    try:
        whole = metric_series_of(table)
    except ValueError:  # no row
        return
    warned: list[str] = []
    step, samples = whole.step_seconds, whole.values.shape[2]

    def pull(*, start: float, stop: float, leave_out: LeavingOut | None = None) -> MetricSeries:
        first, last = (min(max(round((at - whole.start) / step), 0), samples) for at in (start, stop))
        part = replace(whole, start=whole.start + first * step, values=whole.values[:, :, first:last])
        there = np.isfinite(part.values).any(axis=(0, 2))
        return part.only(np.flatnonzero(there))

    source: Any = SimpleNamespace(name="", step_seconds=step, pull=pull, check=lambda series: None)
    watch_settings = WatchSettings(window=40 * step, history=60 * step)
    detector = outlier_detector()
    watch = FleetWatch(source, detector, watch_settings, lambda event: None, warned.append, clock=lambda: 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for at in range(20, samples + 20, 20):
            watch.round(whole.start + at * step)
            assert "failed" not in watch.unjudged
    assert all(line.startswith("these machines seem to share no job") for line in warned)


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
