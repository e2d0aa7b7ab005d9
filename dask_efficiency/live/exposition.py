"""Metrics in Prometheus' text format, written several times as fast as by prometheus_client.

There are no exemplars: only the OpenMetrics format has them, and Dask answers every scrape in the text format.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

from dask_efficiency.accounts.rows import MAX_CACHED

PREFIX = "dask_efficiency"

#: Numbers by the value of a label, or by the values of several.
Values = Mapping[Any, float]

_Family = TypeVar("_Family", CounterMetricFamily, GaugeMetricFamily)


def seconds(
    name: str, meaning: str, label: str, keys: Iterable[str], rows: Mapping[str, Mapping[str, int]], *, of: str = ""
) -> CounterMetricFamily:
    """Counters in seconds, of nanoseconds by key, all from 0 on; ``of`` is the label of the rows, if not only one."""
    family = CounterMetricFamily(f"{PREFIX}_{name}", meaning)
    total = f"{PREFIX}_{name}_total"
    # Not by add_metric, which takes twice as long: nearly all samples are made here.
    family.samples = [
        Sample(total, {of: row_name, label: key} if of else {label: key}, row.get(key, 0) / 1e9)
        for row_name, row in rows.items()
        for key in keys
    ]
    return family


def _family(kind: type[_Family], name: str, meaning: str, value: float | Values, *labels: str) -> _Family:
    if not isinstance(value, Mapping):
        return kind(f"{PREFIX}_{name}", meaning, value=float(value))
    family = kind(f"{PREFIX}_{name}", meaning, labels=labels)
    for of, each in value.items():
        family.add_metric([of] if isinstance(of, str) else of, each)
    return family


#: A counter or a gauge, or one for each value of its labels.
counter, gauge = partial(_family, CounterMetricFamily), partial(_family, GaugeMetricFamily)


# -- text ------------------------------------------------------------------------------------------


_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def text(metrics: Iterable[Metric]) -> bytes:
    """Text of metrics, as of ``generate_latest``; numbers may be spelled differently, ``1000000.0`` for ``1e+06``."""
    lines: list[str] = []
    for metric in metrics:
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        lines.append(f"# HELP {name} {metric.documentation}\n# TYPE {name} {metric.type}\n")
        lines += map(_line, metric.samples)
    return "".join(lines).encode()


def _line(sample: Sample) -> str:
    labels = _labels(*sample.labels.items()) if sample.labels else ""
    return f"{sample.name}{labels} {float(sample.value)!r}\n"


@lru_cache(maxsize=MAX_CACHED)
def _labels(*labels: tuple[str, str]) -> str:
    """Label names and values as text; cached, as they repeat at each scrape."""
    return "{" + ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels)]) + "}"


def with_ours(
    handler: type[Any],
    ours: Callable[[], Awaitable[bytes | None]],
    left_out: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> type[Any]:
    """Dask's handler of ``/metrics``, with ours appended, which ``left_out`` keeps from its own; None is a failure."""

    class MetricsHandler(handler):  # type: ignore[misc]  # upstream's has no types
        """Handler with our metrics appended."""

        async def get(self) -> None:
            """Answer a scrape; if our metrics fail, answer as Dask does."""
            own = await ours()
            if own is None:
                super().get()
                return
            await asyncio.sleep(0)  # Dask's take a turn of the event loop of their own
            with left_out():
                super().get()
            self.write(own)

    return MetricsHandler
