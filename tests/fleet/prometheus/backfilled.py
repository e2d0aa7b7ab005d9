"""A real Prometheus with the past of generated machines, written by promtool as if it had been there all the time."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dashboards.monitor.prometheus import Server, running
from tests.fleet.generated import NAMES

#: One of the metrics is written as a counter, which a restart of its exporter sets to 0.
COUNTER = "throughput"


def open_metrics(values: Mapping[str, NDArray[np.float32]], *, start: float, step: int) -> str:
    """Text of the past: by metric, shape (machines, seconds); every ``step``-th second is a scrape."""
    lines = []
    for name, of_metric in values.items():
        kind = "counter" if name == COUNTER else "gauge"
        lines.append(f"# TYPE fleet_{name} {kind}")
        suffix = "_total" if name == COUNTER else ""
        for machine, of_machine in enumerate(of_metric):
            series = f'fleet_{name}{suffix}{{instance="m{machine:02}",job="fleet",rack="r1"}} '
            taken = np.cumsum(np.nan_to_num(of_machine)) if name == COUNTER else of_machine
            if name == COUNTER:
                reset = len(taken) // 3 + 10 * machine
                taken = np.where(np.arange(len(taken)) >= reset, taken - taken[reset], taken)
            shown = taken[::step].tolist()
            lines += [f"{series}{value:.9g} {start + i * step:.3f}" for i, value in enumerate(shown) if value == value]
    return "\n".join([*lines, "# EOF\n"])


@contextmanager
def prometheus_with(text: str, folder: Path, *, scrape: Mapping[str, object] | None = None) -> Iterator[Server]:
    """A Prometheus that has this past, and scrapes what a configuration says."""
    past = folder / "past.txt"
    past.write_text(text)
    data = folder / "data"
    data.mkdir()
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(past), str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    past.unlink()
    config = folder / "prometheus.yml"
    config.write_text(json.dumps(scrape or {"scrape_configs": []}))
    with running(config) as server:
        yield server


def metrics_file(*, step: int = 5, names: tuple[str, ...] = NAMES) -> str:
    """A file of metrics for it."""
    rows = [f"step: {step}s", "machine: instance", "group: rack", "metrics:"]
    for name in names:
        query = f"rate(fleet_{name}_total[{2 * step}s])" if name == COUNTER else f"fleet_{name}"
        rows += [f"  {name}:", f"    query: {query}"]
    return "\n".join([*rows, ""])
