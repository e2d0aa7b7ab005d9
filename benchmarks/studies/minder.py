"""Minder, what its authors compared it with, and find_outliers, on three generators of fleets and two public fleets.

``python -m benchmarks.studies.minder [--data FOLDER]`` trains on some windows, chooses each method's threshold on
others, and prints of a third part F1 with its 95 % interval from resampled windows, precision, recall, and
medians of the seconds from the onset until a right machine is named, before which all are wrong, and of CPU time.

Minder (Deng et al., NSDI 2025) compares reconstructions of one metric after the other by Euclidean distances between
machines, and names one that is the furthest for four minutes. As in its section 6, RAW has samples in place of
reconstructions, CON one vector of all metrics' reconstructions, INT one network for all metrics; Manhattan and
Chebyshev are other distances, Mahalanobis is that of each metric's first four moments over a minute; without
continuity the first look names; fewer metrics are the three that tell faults best, more are all that there are. Each
looks every ten seconds. find_outliers has its defaults, and is asked again each minute after the onset.

SMD and ASD are real machines with labels, which :mod:`benchmarks.studies.labelled` cuts into windows. Minder looks at
each sample there, every 15 s. The train part has no labels, so the order of the metrics is learnt where thresholds are
chosen. Metrics have no names: all count as the paper's, and there are no more.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

# one core, as others share the machine
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import figure
from benchmarks.studies import generator, stillness
from benchmarks.studies.labelled import FLEETS, Window, split
from benchmarks.studies.outliers import SECOND, drawn_machines, f1
from benchmarks.studies.rivals import lasting, prioritised
from dask_efficiency.fleet.minder.detector import WINDOW_SAMPLES, Minder, embedded
from dask_efficiency.fleet.minder.network import Autoencoder, normalised, windowed
from dask_efficiency.fleet.minder.train import fit, train_minder
from dask_efficiency.fleet.outliers.metric_series import MetricSeries, filled
from dask_efficiency.fleet.outliers.outliers import find_outliers
from tests.fleet import generated

Scores = NDArray[np.float32]
Rows = NDArray[np.int64]

#: Seconds between two looks, and looks for which a machine must be the furthest, by share.
STRIDE, CONTINUITY, SHARE = 10, 24, 0.9
#: Thresholds to choose from; a z-score among N machines is at most sqrt(N - 1).
THRESHOLDS = (1.2, 1.4, 1.6, 1.8, 2.0, 2.3, 2.6, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0)
#: Machines of a task at most; how many metrics are fewer; and those of the paper, in the generators' names.
MOST_MACHINES, FEWER = 100, 3
PAPERS = {*generator.HOST_NAMES, "cpu_usage", "gpu_duty_cycle", "pfc_tx_rate", "nvlink_bandwidth", "memory_usage"}
OURS, WITHOUT = "find_outliers", "without continuity"


def first(seed: int) -> Window:
    made = generator.generate(seed, machines=drawn_machines(SECOND, seed, most=MOST_MACHINES))
    names = tuple("memory_usage" if name == "memory" else name for name in generator.METRICS)
    return Window(MetricSeries.of(made.values, metrics=names), made.faulty, made.onset)


def second(seed: int) -> Window:
    made = generated.generate(seed, machines=drawn_machines(SECOND, seed, most=MOST_MACHINES))
    return Window(MetricSeries.of(made.values, metrics=made.metrics), made.faulty, made.onset or -1.0)


def third(seed: int) -> Window:
    made = stillness.generate(seed, machines=max(8, drawn_machines(SECOND, seed, most=MOST_MACHINES)))
    series = MetricSeries.of(made.values, metrics=made.metrics, step_seconds=made.every_seconds)
    return Window(series, made.faulty, made.onset or -1.0)


GENERATORS: dict[str, tuple[Callable[[int], Window], Sequence[int], Sequence[int], Sequence[int]]] = {
    "first": (first, generator.TRAIN, generator.TUNE, generator.REPORT),
    "second": (second, generated.TRAIN, generated.TUNE, generated.REPORT),
    "third": (third, stillness.TRAIN, stillness.TUNE, stillness.REPORT),
}


# -- what is compared ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trained:
    """A network for each metric, their names by how well they tell faults, and one network for the paper's together."""

    minder: Minder
    names: tuple[str, ...]
    papers: tuple[str, ...]
    together: Autoencoder

    @classmethod
    def on(cls, windows: Sequence[Window], steps: int, told: Sequence[Window]) -> Trained:
        minder = train_minder(runs := [window.series for window in windows], steps=steps)
        faulty = [{str(one) for one in window.faulty} for window in told]
        names = prioritised([window.series for window in told], faulty=faulty, metrics=minder.metrics)
        papers = tuple(name for name in names if name in PAPERS) or names
        flat = np.concatenate([stacked(run, papers).reshape(-1, WINDOW_SAMPLES, len(papers)) for run in runs])
        return cls(minder, names, papers, fit(flat[np.isfinite(flat).all(axis=(1, 2))], steps=steps, seed=0))


def samples(series: MetricSeries, name: str, length: int = WINDOW_SAMPLES) -> Scores:
    """Windows of a metric between 0 and 1, with gaps filled, or 0 where it is not there: (machines, looks, samples)."""
    there = [one for one, metric in enumerate(series.metrics) if metric == name]
    values = normalised(series.values[there] if there else 0 * series.values[:1])
    return windowed(filled(values, reach=round(30 / series.step_seconds))[0], length=length, stride=strides(series))


def strides(series: MetricSeries) -> int:  # samples from one look to the next
    return max(1, round(STRIDE / series.step_seconds))


def stacked(series: MetricSeries, names: Sequence[str]) -> Scores:
    """Windows of several metrics: (machines, looks, samples, metrics)."""
    return np.stack([samples(series, name) for name in names], axis=3)


def reconstructed(trained: Trained, series: MetricSeries, names: Sequence[str]) -> list[Scores]:
    return [embedded(trained.minder.models[name], samples(series, name)) for name in names]


def integrated(trained: Trained, series: MetricSeries) -> Scores:
    windows = stacked(series, trained.papers)
    return trained.together.reconstruct(windows.reshape(-1, *windows.shape[2:])).reshape(*windows.shape[:2], -1)


def farthest(embeddings: Scores, order: float = 2) -> Scores:
    """Sum of a machine's distances to all others, as a z-score: the paper's normal score (its section 4.4)."""
    sums = np.empty(embeddings.shape[:2], np.float32)
    for look in range(embeddings.shape[1]):
        mine = embeddings[:, look]
        theirs = mine[np.isfinite(mine).all(axis=1)]
        sums[:, look] = np.linalg.norm(mine[:, None] - theirs[None], ord=order, axis=2).sum(axis=1)
    return scored(sums)


def scored(sums: Scores) -> Scores:
    known = np.isfinite(sums)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, sums, 0).sum(axis=0) / count
    spread = np.sqrt(np.where(known, (sums - mean) ** 2, 0).sum(axis=0) / count)
    return np.asarray((sums - mean) / np.maximum(spread, 1e-9), np.float32)


def mahalanobis(series: MetricSeries, names: Sequence[str]) -> Scores:
    """Distance of a machine's moments of the last minute from all machines', in a fifth as many components."""
    parts = []
    for name in names:
        last = samples(series, name, round(60 / series.step_seconds))
        mean, spread = last.mean(axis=2), np.maximum(last.std(axis=2), 1e-6)
        z = (last - mean[..., None]) / spread[..., None]
        parts += [mean, spread, (z**3).mean(axis=2), (z**4).mean(axis=2)]
    features = np.stack(parts, axis=2)
    distances = np.full(features.shape[:2], np.nan, np.float32)
    for look in range(features.shape[1]):
        known = np.isfinite(features[:, look]).all(axis=1)
        if known.sum() >= generated.MIN_MACHINES:
            away = features[known, look] - features[known, look].mean(axis=0)
            components = np.linalg.svd(away / np.maximum(away.std(axis=0), 1e-9), full_matrices=False)[0]
            distances[known, look] = np.linalg.norm(components[:, : max(1, len(components) // 5)], axis=1)
    return scored(distances)


def methods(trained: Trained) -> dict[str, Callable[[MetricSeries], list[Scores]]]:
    """Scores of machines by metric, or by what is in its place."""
    papers, more = trained.papers, trained.names

    def by_metric(names: Sequence[str], order: float = 2) -> Callable[[MetricSeries], list[Scores]]:
        return lambda series: [farthest(one, order) for one in reconstructed(trained, series, names)]

    return {
        "Minder": by_metric(papers),
        "RAW": lambda series: [farthest(samples(series, name)) for name in papers],
        "CON": lambda series: [farthest(np.concatenate(reconstructed(trained, series, papers), axis=2))],
        "INT": lambda series: [farthest(integrated(trained, series))],
        "Manhattan": by_metric(papers, 1),
        "Chebyshev": by_metric(papers, np.inf),
        "Mahalanobis": lambda series: [mahalanobis(series, papers)],
        WITHOUT: by_metric(papers),
        "fewer metrics": by_metric(papers[:FEWER]),
    } | ({"more metrics": by_metric(more)} if more != papers else {})


# -- judging ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """Machines that a method named by threshold, each with the second in which it did, and CPU seconds that it took."""

    named: dict[float, dict[int, float]]
    seconds: float = 0.0


def furthest(scores: Sequence[Scores], length: int, every: float = STRIDE) -> Found:
    """Minder's search: the first metric in which the same machine is the furthest for long enough names it."""
    found = Found({threshold: {} for threshold in THRESHOLDS})
    for score in scores:
        score = np.where(np.isfinite(score), score, -np.inf)
        best, height, rows = score.argmax(axis=0), score.max(axis=0), np.unique(score.argmax(axis=0))
        for threshold in THRESHOLDS:
            since = lasting((best == rows[:, None]) & (height > threshold), length=length, share=SHARE)
            if not found.named[threshold] and (since >= 0).any():
                one = int(np.argmin(np.where(since >= 0, since, np.inf)))
                found.named[threshold] = {int(rows[one]): float(since[one] + length) * every}
    return found


def ours(window: Window) -> Found:
    """find_outliers of the whole window, and of what there is each minute after the onset."""
    began = time.process_time()
    named = {int(one.worker): float("nan") for one in find_outliers(window.series)}
    found = Found({0.0: named}, time.process_time() - began)
    right = {*named} & {*window.faulty}
    values, step = window.series.values, window.series.step_seconds
    for end in np.arange(window.onset + 60, values.shape[2] * step, 60) if right else ():
        part = replace(window.series, values=values[:, :, : int(end / step)])
        if right & {int(one.worker) for one in find_outliers(part)}:
            return Found({0.0: named | dict.fromkeys(right, float(end))}, found.seconds)
    return found


def of_metrics(series: MetricSeries, names: Sequence[str]) -> MetricSeries:
    there = [one for one, metric in enumerate(series.metrics) if metric in names]
    return replace(series, metrics=tuple(series.metrics[one] for one in there), values=series.values[there])


def judged(windows: Sequence[Window], trained: Trained) -> Iterator[tuple[str, list[Found]]]:
    yield OURS, [ours(replace(window, series=of_metrics(window.series, trained.papers))) for window in windows]
    for name, scores in methods(trained).items():
        found = []
        for window in windows:
            began, every = time.process_time(), strides(window.series) * window.series.step_seconds
            length = 1 if name == WITHOUT else round(CONTINUITY * STRIDE / every)
            found.append(furthest(scores(window.series), length, every))
            found[-1].seconds = time.process_time() - began
        yield name, found


def counts(windows: Sequence[Window], found: Sequence[Found], threshold: float) -> tuple[Rows, list[float]]:
    """By window right, false and missed machines; and seconds from the onset until right ones were named."""
    rows, waits = [], []
    for one, window in zip(found, windows, strict=True):
        named = one.named[threshold]
        right = {machine for machine in window.faulty if machine in named and not named[machine] < window.onset}
        rows.append((len(right), len(named) - len(right), len(window.faulty) - len(right)))
        waits += [named[machine] - window.onset for machine in right if named[machine] >= window.onset]
    return np.array(rows, np.int64), waits


def line(name: str, found: Sequence[Found], rows: Rows, waits: Sequence[float]) -> str:
    right, false, missed = rows.sum(axis=0)
    drawn = np.random.default_rng(0).integers(0, len(rows), (1000, len(rows)))
    low, high = np.quantile([f1(rows[one].sum(axis=0)) for one in drawn], (0.025, 0.975))
    rates = f"{right / max(right + false, 1):9.2f} {right / max(right + missed, 1):6.2f}"
    times = f"{median(waits or [np.nan]):7.0f} {median(one.seconds for one in found):7.2f}"
    return f"{name:20} {f1(rows.sum(axis=0)):5.2f} [{low:.2f}, {high:.2f}] {rates} {times}"


def parts(name: str, given: argparse.Namespace) -> Sequence[list[Window]]:
    if name in FLEETS:
        return split(given.data, name)
    make, *seeds = GENERATORS[name]
    return [
        [make(one) for one in of[:n]] for of, n in zip(seeds, (given.train, given.tune, given.windows), strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generator", choices=[*GENERATORS, *FLEETS], nargs="+", help="default: all that there are")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="data/processed of a checkout of InterFusion")
    for what, number in (("train", 12), ("steps", 400), ("tune", 30), ("windows", 60)):
        parser.add_argument(f"--{what}", type=int, default=number, help=f"default {number}")
    given = parser.parse_args(arguments)
    names = given.generator or [*GENERATORS, *(FLEETS if given.data else ())]
    if given.data is None and (lacking := [name for name in names if name in FLEETS]):
        parser.error(f"{' and '.join(lacking)} need --data FOLDER: data/processed of a checkout of InterFusion")
    for name in names:
        train, tune, report = parts(name, given)
        trained = Trained.on(train, given.steps, train if any(one.faulty for one in train) else tune)
        onsets = [one.onset for one in report if one.faulty]
        told = f"{len(report)} windows, {len(onsets)} with a fault ({onsets.count(0)} from the first sample on)"
        print(f"=== {name}: {told}; metrics: {', '.join(trained.papers)}", flush=True)
        print(f"{'':20} {'F1':>5} {'95 %':12} {'precision':>9} {'recall':>6} {'seconds':>7} {'CPU s':>7}", flush=True)
        chosen = {}
        for method, found in judged(tune, trained):
            scores = {threshold: f1(counts(tune, found, threshold)[0].sum(axis=0)) for threshold in found[0].named}
            chosen[method] = max(scores, key=scores.__getitem__)
        for method, found in judged(report, trained):
            rows, waits = counts(report, found, chosen[method])
            print(line(method, found, rows, waits), flush=True)
            figure(f"F1 of {method}, {name}", f1(rows.sum(axis=0)))


if __name__ == "__main__":
    main()
