"""Windows of either generator of monitoring data, in one form."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks import stragglers_fleet as fleet
from benchmarks import stragglers_generator as generator
from dask_efficiency.fleet.outliers.metric_series import MetricSeries

#: What the package calls the first generator's metrics: there, "memory" is that of a Dask worker's process, and more of
#: it is worse.
HOST_NAMES = tuple("memory_usage" if name == "memory" else name for name in generator.SEVEN)

#: The generator that the settings were first chosen on, and the one with lasting differences.
FIRST, SECOND = "first", "second"

SEEDS = {
    (FIRST, "train"): generator.TRAIN,
    (FIRST, "tune"): generator.TUNE,
    (FIRST, "report"): generator.REPORT,
    (SECOND, "train"): fleet.TRAIN,
    (SECOND, "tune"): fleet.TUNE,
    (SECOND, "report"): fleet.REPORT,
}


@dataclass(frozen=True, slots=True)
class Given:
    """What a detector gets of a window, and the truth."""

    series: MetricSeries
    #: The same machines just before; None where there is no past.
    history: MetricSeries | None
    faulty: tuple[int, ...]
    #: The type of the fault; empty where there is none.
    kind: str


def drawn_machines(of: str, seed: int, *, most: int) -> int:
    """Machines of a task, and at most so many; of the first generator as it draws them itself."""
    # The second's own stream is [seed, 0], which is the same as seed: there, large tasks alone would have faults.
    random = np.random.default_rng(seed if of == FIRST else [seed, 77])
    drawn = random.uniform(math.log(fleet.MIN_MACHINES), math.log(fleet.MAX_MACHINES))
    return min(round(math.exp(drawn)), most)


def windows(
    of: str,
    seeds: Sequence[int],
    *,
    most_machines: int,
    past_seconds: int = 0,
    machines: int | None = None,
    concurrent: int = 1,
    faults: bool | None = None,
    onset_before: bool = False,
) -> Iterator[Given]:
    """Windows of a generator, by seed; only those of the second have a past or a fault from before they begin."""
    for seed in seeds:
        count = drawn_machines(of, seed, most=most_machines) if machines is None else machines
        if of == FIRST:
            window = generator.generate(seed, machines=count, concurrent=concurrent, faulty=faults)
            series = MetricSeries.of(window.metrics(generator.SEVEN), metrics=HOST_NAMES)
            yield Given(series, None, window.faulty, window.fault)
        else:
            yield given(
                fleet.generate(
                    seed,
                    machines=count,
                    past_seconds=past_seconds,
                    faults=faults,
                    concurrent=concurrent,
                    onset_before=onset_before,
                )
            )


def given(window: fleet.FleetWindow) -> Given:
    """A window of the second generator."""
    history = None
    if window.past is not None:
        past = MetricSeries.of(window.past, metrics=window.metrics)
        history = replace(past, start=-float(window.past.shape[2]))
    return Given(MetricSeries.of(window.values, metrics=window.metrics), history, window.faulty, window.kind or "")
