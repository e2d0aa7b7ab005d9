"""The first job of a user who has installed the wheel and nothing else; ``make dist`` runs it in an empty folder."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from time import sleep

from distributed import Client, LocalCluster

import dask_efficiency
from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.gpu.cupti.callbacks import LIBRARY, BufferPool

EXTRAS = ("bokeh", "pandas", "prometheus_client", "pynvml", "rich", "torch")


def main() -> None:
    """Check what is installed, meter a cluster, and print and save its report."""
    assert dask_efficiency.__file__.startswith(sys.prefix), dask_efficiency.__file__
    assert [name for name in EXTRAS if find_spec(name)] == []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        with efficiency_report() as report:
            client.gather(client.map(sleep, [0.1] * 8, pure=False))
    print(report)
    assert report.breakdown["thread-noncpu"] > 0.7, report.breakdown
    report.save("run.json")
    report.to_html("run.html")
    if LIBRARY.exists():  # a pure wheel has none
        BufferPool(count=2).callbacks()


if __name__ == "__main__":
    main()
