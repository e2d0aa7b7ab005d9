from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import dask
import distributed.scheduler
import numpy as np
import pytest
from distributed import Client

import dask_efficiency
from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.fleet import find_outliers
from dask_efficiency.fleet.scheduler import outlier_watch, worker_series
from dask_efficiency.plugin.names import METRIC
from tests.plugin.tasks import spin
from tests.plugin.test_stragglers_on_a_cluster import stopped_in_turns
from tests.plugin.watch import addresses, eventually, name_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="sensors are read on Linux only"),
]


def test_sensors_of_a_host_are_in_the_trace_and_in_the_series_until_they_are_switched_off(new_cluster):
    with new_cluster(n_workers=2, threads_per_worker=1) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())

        def known() -> Any:
            series = dask_efficiency.fleet.worker_series(client, 60)
            return series if {"host_cpu", "memory_available", "memory"} <= set(series.metrics) else None

        with efficiency_report(client, trace=True) as report:
            client.gather(client.map(spin, [0.01] * 4, pure=False))
            series = eventually(known)

            def recorded() -> bool:
                return bool(np.isfinite(dask_efficiency.get_trace(client).series.host_cpu).any())

            assert eventually(recorded)
        columns = report.trace.series
        assert np.nanmax(columns.memory_available) > 1e6
        assert np.isnan(columns.gpu_temperature).all()
        assert sorted(series.workers) == ["0", "1"]
        assert len(set(series.groups)) == len(set(series.hosts)) == 1
        assert series.values.shape == (len(series.metrics), 2, series.values.shape[2])

        with pytest.raises(ValueError, match="seconds is -1; expected a positive number"):
            dask_efficiency.fleet.worker_series(client, -1)
        client.register_plugin(EfficiencyPlugin(sensors=False))
        workers = cluster.scheduler.workers.values()
        assert eventually(lambda: not any("sensors" in ws.metrics[METRIC] for ws in workers))
        assert all("pace" in ws.metrics[METRIC] for ws in workers)


#: Samples are as far apart as heartbeats, and count as if they were as far apart as usual.
STEP = 0.25


def test_a_worker_that_is_throttled_shows_in_the_series_and_is_named_without_a_task(new_cluster, monkeypatch):
    def find(series: Any, history: Any, *, same_work: bool) -> Any:
        window, past = (None if one is None else replace(one, step_seconds=5.0) for one in (series, history))
        found = find_outliers(window, history=past, continuity_seconds=90.0, same_work=same_work)
        return [replace(one, since=series.start + STEP / 5.0 * (one.since - series.start)) for one in found]

    # Workers take the interval of their heartbeats from the scheduler, which is in this process.
    monkeypatch.setattr(distributed.scheduler, "heartbeat_interval", lambda workers: STEP)
    monkeypatch.setattr(worker_series, "STEP_SECONDS", STEP)
    monkeypatch.setattr(outlier_watch, "EVERY_SECONDS", 1.0)
    monkeypatch.setattr(outlier_watch, "find_outliers", find)
    with (
        dask.config.set({"distributed.admin.tick.cycle": f"{STEP}s"}),  # how often a worker measures its event loop
        new_cluster(n_workers=4, threads_per_worker=1) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin(outliers=True))
        victim = addresses(client)[2]
        name = name_of(client, victim)
        pid = client.run(os.getpid, workers=[victim])[victim]
        # It must have a past in which it was as the others are.
        eventually(lambda: dask_efficiency.fleet.worker_series(client).values.shape[2] >= 32)

        def turns_slowly() -> bool:
            series = dask_efficiency.fleet.worker_series(client, 5.0)
            late = series.values[series.metrics.index("loop_interval")]
            own = late[series.workers.index(name)]
            return bool(np.nanmean(own) > 1.3 * np.nanmedian(late))

        with stopped_in_turns(pid, seconds=0.125):
            assert eventually(turns_slowly)
            stragglers = dask_efficiency.stragglers
            assert eventually(lambda: name in {found.worker for found in stragglers(client)}, seconds=300)
        events = [event for _, event in client.get_events("dask-efficiency")]
        assert name in {event["worker"] for event in events if event["action"] == "straggler"}
