"""Claim: a thousand clients that open windows at once hold up the scheduler no longer than some.

Clients open a window each on a scheduler in this process, with workers in processes of their own, and then all that are
open are closed. Printed are, of each half, the CPU seconds of the scheduler's thread, and the most of these between two
turns of its event loop, in which it answers nobody.

``python -m benchmarks.open_windows [--windows N] [--workers N]``
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import Iterator

from distributed import LocalCluster

from benchmarks.figures import figure
from dask_efficiency import EfficiencyPlugin
from dask_efficiency.plugin import names

#: Seconds until the workers have sent heartbeats.
SETTLED_SECONDS = 2.0
#: What is compared with.
NOTHING = "opening nothing for 2 s"
#: Seconds between two looks whether the event loop turns.
LOOK_SECONDS = 0.001


@contextlib.contextmanager
def printed(what: str) -> Iterator[None]:
    """Print what the block cost the event loop."""
    longest = 0.0

    async def look() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()
            await asyncio.sleep(LOOK_SECONDS)
            longest = max(longest, time.thread_time() - began)

    looking, began = asyncio.ensure_future(look()), time.thread_time()
    try:
        yield
    finally:
        looking.cancel()
    print(f"{what}: {time.thread_time() - began:.2f} s of CPU, {longest * 1e3:.0f} ms at most in one turn")
    if what != NOTHING:
        figure(f"most in one turn, {what}", longest * 1e3, "ms")


async def measure(windows: int, workers: int) -> None:
    """Open windows at once, then close them at once."""
    async with LocalCluster(
        n_workers=workers, threads_per_worker=1, asynchronous=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        plugin = EfficiencyPlugin()
        await cluster.scheduler.register_scheduler_plugin(plugin, name=plugin.name, idempotent=False)
        await asyncio.sleep(SETTLED_SECONDS)
        meter = plugin._meter
        assert meter is not None
        with printed(NOTHING):
            await asyncio.sleep(2)
        opening = {"client": "benchmark", "span": "span"}
        with printed(f"opening {windows} windows"):
            asked = [meter.handle(names.OPEN, window=f"w{i}", **opening) for i in range(windows)]
            await asyncio.gather(*asked)
        left = list(meter.windows)
        with printed(f"closing the {len(left)} that are open"):
            await asyncio.gather(*[meter.handle(names.CLOSE, window=window) for window in left])


def main() -> None:
    """Parse the arguments, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.windows, arguments.workers))


if __name__ == "__main__":
    main()
