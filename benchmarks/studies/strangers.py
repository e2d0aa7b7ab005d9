"""Claim: of machines that share no job, the watch names at most one a machine and month wrongly.

``python -m benchmarks.studies.strangers`` lets the watch, with its default settings, watch generated fleets of
machines that have their own load: another level, daily cycle, bursts and changes for good on each. None is at fault, so
every alarm is false. Then it counts the healthy fleets of eight, of the three generators of a job, with an alarm: at
most 5 of 120 with a sample a second, and with one in 15 s.

``--data FOLDER`` adds real machines with labels (:mod:`benchmarks.studies.labelled`). They are watched at their own
pace, with windows of 30 samples and histories of 120, and with the default settings as if they were sampled every 15 s.
An alarm is right if a sample of the machine in the window has a label.

The generator's numbers are guesses, and were chosen before its first run. The rule of
:mod:`dask_efficiency.fleet.rounds.alarm_bound` was chosen on ASD and half of the runs on SMD.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

# one core, as others share the machine
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import figure
from benchmarks.studies import generator as first
from benchmarks.studies import stillness as third
from benchmarks.studies.labelled import FLEETS, public
from dask_efficiency.fleet.assembly import outlier_detector
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.outliers.outliers import find_outliers
from dask_efficiency.fleet.rounds.rounds import Event, FindingChange
from dask_efficiency.fleet.settings import WatchSettings
from dask_efficiency.fleet.watch import FleetWatch
from tests.fleet import generated as second

MONTH_SECONDS = 30 * 86_400.0

#: Of each machine: range of its level; of the share of it that its day moves; changes for good a day and their spread;
#: bursts an hour, their minutes and factors; noise as a share, and the seconds for which it lasts.
LEVEL, DAILY, CHANGES_A_DAY, CHANGE_SIGMA = (0.05, 1.0), (0.0, 0.8), 4.0, 0.5
BURSTS_AN_HOUR, BURST_MINUTES, BURST_FACTOR = 1.0, (1.0, 20.0), (1.2, 3.0)
NOISE, NOISE_SECONDS = 0.05, 60.0
METRICS = ("cpu", "load", "memory", "disk", "received", "sent")


def strangers(seed: int, *, machines: int, step: float, days: float) -> NDArray[np.float32]:
    """Metrics of machines that share nothing; shape (metrics, machines, samples)."""
    random = np.random.default_rng([seed, 91])
    count = round(days * 86_400 / step)
    at = step * np.arange(count)
    values = np.empty((len(METRICS), machines, count), np.float32)
    keeps = np.exp(-step / NOISE_SECONDS)
    for machine in range(machines):
        load = 1 + random.uniform(*DAILY) * np.sin(2 * np.pi * (at / 86_400 + random.random()))
        for change in random.uniform(0, at[-1], random.poisson(CHANGES_A_DAY * days)):
            load[at >= change] *= np.exp(CHANGE_SIGMA * random.standard_normal())
        load /= np.median(load)
        for burst in random.uniform(0, at[-1], random.poisson(BURSTS_AN_HOUR * 24 * days)):
            lasts = 60 * random.uniform(*BURST_MINUTES)
            load[(at >= burst) & (at < burst + lasts)] *= random.uniform(*BURST_FACTOR)
        for number in range(len(METRICS)):
            noise = random.standard_normal(count)
            for sample in range(1, count):
                noise[sample] = keeps * noise[sample - 1] + np.sqrt(1 - keeps**2) * noise[sample]
            level = np.exp(random.uniform(*np.log(LEVEL)))
            values[number, machine] = level * load ** random.random() * np.exp(NOISE * noise)
    return values


@dataclass(slots=True)
class Recorded:
    """A fleet's past as the source of a watch, and its labels by machine and sample."""

    series: MetricSeries
    labels: NDArray[np.bool_]
    name: str = "recorded"
    step_seconds: float = field(init=False)

    def __post_init__(self) -> None:
        self.step_seconds = self.series.step_seconds

    def pull(self, *, start: float, stop: float, leave_out: object = None) -> MetricSeries:
        """Samples between two instants."""
        first, last = self._samples(start, stop)
        return replace(self.series, start=first * self.step_seconds, values=self.series.values[:, :, first:last])

    def _samples(self, start: float, stop: float) -> tuple[int, int]:
        count = self.series.values.shape[2]
        first, last = (min(max(round(at / self.step_seconds), 0), count) for at in (start, stop))
        return first, last

    def check(self, series: MetricSeries) -> None:
        """Accept anything."""

    def is_right(self, machine: str, start: float, stop: float) -> bool:
        """True if a sample of the machine has a label."""
        first, last = self._samples(start, stop)
        return bool(self.labels[self.series.workers.index(machine), first:last].any())


def recorded(values: NDArray[np.float32], step: float, labels: NDArray[np.bool_] | None = None) -> Recorded:
    """Fleet of an array of shape (metrics, machines, samples); nobody is at fault without labels."""
    series = MetricSeries.of(values, metrics=[f"m{number}" for number in range(len(values))], step_seconds=step)
    return Recorded(series, np.zeros(values.shape[1:], np.bool_) if labels is None else labels)


def watched(title: str, fleet: Recorded, settings: WatchSettings) -> float:
    """Watch a whole past, print what was named, and return the false episodes a machine and month."""
    told: list[str] = []
    begun: list[Event] = []
    # the clock would time the rounds
    watch = FleetWatch(fleet, outlier_detector(), settings, begun.append, told.append, clock=lambda: 0.0)  # type: ignore[arg-type]
    length = fleet.series.values.shape[2] * fleet.step_seconds
    rounds = named = right = sure = sure_right = 0
    at = settings.window + settings.history
    while at <= length:
        watch.round(at)
        rounds += 1
        named += bool(watch.found)
        for finding in watch.found:
            is_right = fleet.is_right(finding.worker, at - settings.window, at)
            right += is_right
            sure, sure_right = (
                sure + (finding.confidence >= 0.95),
                sure_right + (finding.confidence >= 0.95 and is_right),
            )
        at += settings.every
    episodes = [event for event in begun if event.change is FindingChange.BEGINS]
    false = sum(not fleet.is_right(one.finding.worker, one.at - settings.window, one.at) for one in episodes)
    months = len(fleet.series.workers) * length / MONTH_SECONDS
    print(
        f"{title}: somebody named in {named / rounds:.0%} of {rounds} rounds; {len(episodes)} episodes, {false} false: "
        f"{false / months:.2f} a machine and month ({months:.1f} watched); labels on {fleet.labels.mean():.1%}; of "
        f"{sure} findings at 95 %, {sure_right} right",
        *told,
        sep="\n  ",
        flush=True,
    )
    return false / months


def eight(every: int, past: int = 3600) -> Iterator[tuple[MetricSeries, MetricSeries | None]]:
    """120 healthy fleets of eight, 40 of each generator, with a past where it has one; a sample in so many seconds."""
    for number in range(40):
        drawn = first.generate(first.REPORT[number], machines=8, faulty=False)
        yield _thinned(drawn.metrics(first.SEVEN), every), None
        for module in (second, third):
            window = module.generate(module.REPORT[number], machines=8, faults=False, past_seconds=past)
            own = getattr(window, "every_seconds", 1)
            assert window.past is not None
            history = replace(_thinned(window.past, every, own), start=-float(past))
            yield _thinned(window.values, every, own), history


def _thinned(values: NDArray[np.float32], every: int, own: int = 1) -> MetricSeries:
    each = max(every // own, 1)
    names = [f"m{number}" for number in range(len(values))]
    return MetricSeries.of(values[:, :, ::each], metrics=names, step_seconds=float(each * own))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="data/processed of a checkout of InterFusion")
    parser.add_argument("--fleets", type=int, default=3, help="generated fleets of eight")
    parser.add_argument("--days", type=float, default=30.0, help="for which each is watched")
    options = parser.parse_args()
    defaults = WatchSettings()
    rates = [
        watched(
            f"generated fleet {seed}",
            recorded(strangers(seed, machines=8, step=30.0, days=options.days), 30.0),
            defaults,
        )
        for seed in range(options.fleets)
    ]
    figure("mean false episodes of generated fleets, a machine and month", float(np.mean(rates)), at_most=1)
    for name, prefix, step in FLEETS.values() if options.data else ():
        values, labels = public(options.data, prefix)
        own = WatchSettings(every=8 * step, window=30 * step, history=120 * step)
        false = watched(f"{name} at its own pace", recorded(values, step, labels), own)
        figure(f"false episodes of {name}, a machine and month", false, at_most=1)
        watched(f"{name} as if sampled every 15 s", recorded(values, 15.0, labels), defaults)
    for every in (1, 15):
        alarms = sum(bool(find_outliers(window, history=history)) for window, history in eight(every))
        figure(f"healthy fleets of eight with an alarm, a sample in {every} s", alarms, of=120, at_most=5)


if __name__ == "__main__":
    main()
