from __future__ import annotations

from dataclasses import replace

import numpy as np

from dask_efficiency.fleet.outliers.hosts import by_host
from dask_efficiency.fleet.outliers.metric_series import MetricSeries


def test_a_host_has_the_mean_of_what_its_workers_read_and_who_is_alone_keeps_all():
    values = np.array([[[1, 2], [3, np.nan], [5, np.nan]], [[7, 7], [8, 8], [9, 9]]], np.float32)
    series = replace(MetricSeries.of(values, metrics=("steal", "memory")), hosts=("a", "a", "b"))
    workers, hosts = by_host(series)
    assert hosts is not None
    assert (workers.metrics, hosts.metrics, hosts.workers) == (("memory",), ("steal",), ("a", "b"))
    np.testing.assert_array_equal(hosts.values, [[[2, 2], [5, np.nan]]])
    np.testing.assert_array_equal(workers.values, values[1:])
    alone = replace(series, hosts=("a", "b", "c"))
    assert by_host(alone) == (alone, None)
    nowhere = replace(series, hosts=("", "", ""))
    assert by_host(nowhere) == (nowhere, None)


def test_hosts_are_compared_that_have_workers_of_the_same_groups():
    values = np.zeros((1, 5, 3), np.float32)
    series = replace(
        MetricSeries.of(values, metrics=("steal",)), hosts=("a", "a", "b", "c", "c"), groups=("x", "y", "x", "y", "x")
    )
    hosts = by_host(series)[1]
    assert hosts is not None
    assert [part.workers for part in hosts.comparable()] == [("a", "c"), ("b",)]
