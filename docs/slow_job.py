"""The slow job of the tutorial: it reads a month of orders from a store, cleans each day, and adds them up.

It knows nothing of dask-efficiency: ``dask-efficiency run slow_job.py`` reports on it.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from distributed import Client, LocalCluster
from numpy.typing import NDArray

DAYS = 30


def read_day(day: int) -> NDArray[np.float64]:
    """The orders of one day. The store takes half a second for each answer, however small it is."""
    time.sleep(0.5)
    return np.random.default_rng(day).normal(100, 20, size=50_000)


def clean(orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Drop the outliers."""
    low, high = np.quantile(np.sort(orders), [0.01, 0.99])
    return orders[(low < orders) & (orders < high)]


def total(orders: NDArray[np.float64]) -> float:
    """The turnover of one day."""
    return float(orders.sum())


def month(client: Client) -> float:
    """The turnover of all days."""
    days = client.map(read_day, range(DAYS), pure=False)
    totals = client.map(total, client.map(clean, days))
    return sum(client.gather(totals))


def main() -> None:
    """Run the job on a local cluster."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1, help="of each of the two workers")
    options = parser.parse_args()
    with (
        LocalCluster(n_workers=2, threads_per_worker=options.threads, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        print(f"turnover: {month(client):.0f}")


if __name__ == "__main__":
    main()
