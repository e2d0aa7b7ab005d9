"""Exposition: metrics in Prometheus' text format, several times as fast as prometheus_client writes them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from distributed.http.scheduler.prometheus.core import PrometheusHandler
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from dask_efficiency.live.prometheus import COLLECTOR

#: Sets of labels whose text is remembered: those of a hundred workers.
MAX_LABELS = 8_192


def text(metrics: Iterable[Metric]) -> bytes:
    """Counters and gauges, whose names and help are plain, as ``generate_latest`` would write them.

    A number may be spelled differently: ``1000000.0`` is there ``1e+06``.
    """
    lines: list[str] = []
    for metric in metrics:
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        lines.append(f"# HELP {name} {metric.documentation}\n# TYPE {name} {metric.type}\n")
        lines += map(_line, metric.samples)
    return "".join(lines).encode()


def _line(sample: Sample) -> str:
    labels = _labels(*sample.labels.items()) if sample.labels else ""
    return f"{sample.name}{labels} {float(sample.value)!r}\n"


@lru_cache(maxsize=MAX_LABELS)
def _labels(*labels: tuple[str, str]) -> str:
    """Names and values as they are written; they are the same at each scrape."""
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in sorted(labels)]) + "}"


def _escaped(value: str) -> str:
    if "\\" in value or "\n" in value or '"' in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


class MetricsHandler(PrometheusHandler):
    """Dask's ``/metrics``, whose answer has our part at its end."""

    def get(self) -> None:
        """Answer a scrape; if our part cannot be written here, as prometheus_client writes it."""
        own = COLLECTOR.written(text)
        if own is None:
            self._get()
            return
        with COLLECTOR.left_out():
            self._get()
        self.write(own)

    def _get(self) -> None:
        super().get()  # type: ignore[no-untyped-call]  # upstream's has no annotations
