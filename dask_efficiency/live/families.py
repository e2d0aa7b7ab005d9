"""Families: counters and gauges of ours, as prometheus_client has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.samples import Sample

PREFIX = "dask_efficiency"


def seconds(
    name: str, meaning: str, label: str, keys: Iterable[str], rows: Mapping[str, Mapping[str, int]], *, of: str = ""
) -> CounterMetricFamily:
    """Nanoseconds by key, as seconds; every key from 0 on.

    Parameters
    ----------
    name, meaning
        Without :data:`PREFIX` and unit; and the help.
    label, keys
        What the nanoseconds are told apart by, and its values.
    rows
        Nanoseconds by key; only one row, under any name, where ``of`` is empty.
    of
        Label of the rows' names.
    """
    family = CounterMetricFamily(f"{PREFIX}_{name}", meaning)
    total = f"{PREFIX}_{name}_total"
    # Not by add_metric, which takes twice as long: these are nearly all the samples that there are.
    family.samples = [
        Sample(total, {of: row_name, label: key} if of else {label: key}, row.get(key, 0) / 1e9)
        for row_name, row in rows.items()
        for key in keys
    ]
    return family


def counter(name: str, meaning: str, value: float) -> CounterMetricFamily:
    """A counter without labels."""
    return CounterMetricFamily(f"{PREFIX}_{name}", meaning, value=value)


def gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    """A gauge without labels."""
    return GaugeMetricFamily(f"{PREFIX}_{name}", meaning, value=float(value))
