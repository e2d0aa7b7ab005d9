"""Somebody's job: it reads twenty files from a slow store and adds them up. It knows nothing of dask-efficiency."""

import sys
import time

from distributed import Client, LocalCluster


def read(number):
    time.sleep(0.2)
    return list(range(number * 1000))


if __name__ == "__main__":
    threads = 4 if "--threads" in sys.argv else 1
    address = sys.argv[sys.argv.index("--on") + 1] if "--on" in sys.argv else None
    repeats = int(sys.argv[sys.argv.index("--repeats") + 1]) if "--repeats" in sys.argv else 1
    cluster = address or LocalCluster(n_workers=2, threads_per_worker=threads, dashboard_address=":0")
    with Client(cluster) as client:
        for _ in range(repeats):
            print(sum(client.gather(client.map(sum, client.map(read, range(20), pure=False), pure=False))))
