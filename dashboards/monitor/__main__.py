"""``python -m dashboards.monitor``: starts the cluster and Prometheus, prints where to look, and runs until Ctrl-C."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import TYPE_CHECKING

from dashboards.monitor.phases import LOOK_AT, PARTS
from dashboards.monitor.prometheus import SCRAPE_INTERVAL, SHORT, PrometheusError, Server, scraping, shorten
from dask_efficiency.report.demo import local_cluster

if TYPE_CHECKING:
    from distributed import Client

WORKERS, THREADS = 2, 2

#: A part is repeated for this long, so that its colour fills a window of the rules.
PART_SECONDS = 40

#: What the link to Prometheus shows, and whether it is stacked.
GRAPHS = (
    (shorten("sum by (activity) (cluster_activity:dask_efficiency_thread_activity_seconds:ratio_rate5m)"), True),
    (shorten("cluster:dask_efficiency:ratio_rate5m"), False),
)


def main() -> int:
    """Run the monitor; the exit status."""
    if shutil.which("prometheus") is None:
        print("There is no `prometheus` on the PATH; `make monitor` says how to install it.", file=sys.stderr)
        return 1
    with _ending_in_order():
        import dask
        from distributed import Client

        from dask_efficiency import EfficiencyPlugin

        # A cluster gives a worker up that is away for 15 s, and one that a part kills may need more than that.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})
        print(f"Starting a cluster of {WORKERS} workers with {THREADS} threads each, and Prometheus ...", flush=True)
        with local_cluster(WORKERS, THREADS, dashboard=True) as cluster, Client(cluster) as client:
            client.register_plugin(EfficiencyPlugin())
            address = f"127.0.0.1:{cluster.scheduler.http_server.port}"
            with scraping(address) as server:
                print(greeting(server, address), flush=True)
                watch(client, server)
    return 0


def greeting(server: Server, address: str) -> str:
    """Where to look, with links."""
    return f"""
  Thread time by activity, and efficiency:
    {server.graphs(*GRAPHS)}
  Alerts:
    {server.alerts()}
  Dask's dashboard:
    http://{address}/efficiency

Prometheus scrapes every {SCRAPE_INTERVAL}. So that you need not wait for hours, all durations in its rules are
shorter here than in dashboards/prometheus: {", ".join(f"{long} is {short}" for long, short in SHORT.items())}.
docs/alerts.md says what each alert means and what to do about it.

The work changes every {PART_SECONDS} seconds. Ctrl-C ends everything.
"""


def watch(client: Client, server: Server) -> None:
    """Run the parts over and over, and say which alerts begin and end."""
    firing: dict[str, str] = {}
    for part in cycle([part for part in PARTS if part.obstacle is None]):
        _say(f"{part.name}: {LOOK_AT[part.name]}")
        until = time.monotonic() + PART_SECONDS
        while time.monotonic() < until:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # for those who write such code, not for those who watch
                part.run(client, 1.0)
            now = server.firing()
            for name in now.keys() - firing.keys():
                _say(f"  {name} fires. {now[name]}")
            for name in firing.keys() - now.keys():
                _say(f"  {name} ends.")
            firing = now


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """The first Ctrl-C or SIGTERM leaves the block; further ones do not disturb that."""

    def leave(number: int, frame: object) -> None:
        for ending in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ending, signal.SIG_IGN)
        # What is interrupted leaves exceptions behind that nobody will retrieve.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        raise KeyboardInterrupt

    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, leave)
    with suppress(KeyboardInterrupt):
        yield
    print("\nEnded: the workers, Prometheus, and its data.", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PrometheusError as error:
        sys.exit(f"{error}")
