"""Programs that are cut too small, with a knob: partitions, chunks or lists of calls so many times as large."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from distributed import Client

_Array = np.ndarray[Any, Any]


def added(client: Client, times: int) -> None:
    """Mean of two arrays that are added, in 600 chunks."""
    import dask.array as da

    rows = 10_000 * times
    x, y = (da.random.default_rng(seed).random((6_000_000,), chunks=rows) for seed in (1, 2))
    (x + y).mean().compute()


def table(client: Client, times: int) -> None:
    """Sums by group of a table in 300 partitions."""
    import dask.dataframe as dd
    import pandas as pd

    def read(part: int) -> Any:
        rng = np.random.default_rng(part)
        return pd.DataFrame({"group": rng.integers(0, 20, 2_000 * times), "v": rng.random(2_000 * times)})

    frame = dd.from_map(read, range(-(-300 // times)), meta=read(0).iloc[:0])
    frame[frame.v > 0.1].groupby("group").v.sum(split_out=1).compute()


def items(client: Client, times: int) -> None:
    """Lengths of texts in a bag of 300 partitions."""
    import dask.bag as db

    def write(part: int) -> list[str]:
        return [f"text {number} of {part}" * 3 for number in range(400 * times)]

    parts = -(-300 // times)
    db.from_sequence(range(parts), npartitions=parts).map(write).flatten().map(len).sum().compute()


def calls(client: Client, times: int) -> None:
    """A thousand futures of a millisecond, or lists of them."""

    def work(seed: int) -> float:
        return float(np.sqrt(np.random.default_rng(seed).random(40_000)).sum())

    def several(seeds: list[int]) -> float:
        return sum(map(work, seeds))

    seeds = list(range(1_000))
    lists = [seeds[i : i + times] for i in range(0, len(seeds), times)]
    client.submit(sum, client.map(several, lists, pure=False), pure=False).result()


def fits(client: Client, times: int) -> None:
    """Lines fitted to 400 small samples, as futures."""

    def fit(seed: int) -> float:
        rng = np.random.default_rng(seed)
        values = rng.random((2_000, 8))
        return float(np.linalg.lstsq(values, values @ np.arange(8.0) + rng.random(2_000), rcond=None)[0].sum())

    def several(seeds: list[int]) -> float:
        return sum(map(fit, seeds))

    lists = [list(range(i, min(i + times, 400))) for i in range(0, 400, times)]
    client.submit(sum, client.map(several, lists, pure=False), pure=False).result()


def picture(client: Client, times: int) -> None:
    """Spread of a picture, in chunks of 100 by 100."""
    import dask.array as da

    side = 100 * max(round(math.sqrt(times)), 1)
    values = da.random.default_rng(3).normal(size=(2_000, 2_000), chunks=(side, side))
    (da.exp(values) - values.mean()).std().compute()


def bins(client: Client, times: int) -> None:
    """A histogram of an array in 400 chunks."""
    import dask.array as da

    values = da.random.default_rng(4).normal(size=8_000_000, chunks=20_000 * times)
    da.histogram(da.clip(values, -3, 3), bins=50, range=(-3, 3))[0].compute()


def names(client: Client, times: int) -> None:
    """Names in capitals, counted, in 200 partitions of text."""
    import dask.dataframe as dd
    import pandas as pd

    def read(part: int) -> Any:
        numbers = np.random.default_rng(part).integers(0, 50, 1_500 * times)
        return pd.DataFrame({"name": [f"name {number}" for number in numbers.tolist()]})

    frame = dd.from_map(read, range(-(-200 // times)), meta=read(0).iloc[:0])
    frame.name.str.upper().value_counts(split_out=1).compute()


def dice(client: Client, times: int) -> None:
    """Throws of dice until a sum is reached: pure Python, as futures."""

    def throw(seed: int) -> int:
        state, total, count = seed + 1, 0, 0
        while total < 20_000:
            state = (1103515245 * state + 12345) % (1 << 31)
            total, count = total + state % 6 + 1, count + 1
        return count

    def several(seeds: list[int]) -> int:
        return sum(map(throw, seeds))

    lists = [list(range(i, min(i + times, 600))) for i in range(0, 600, times)]
    client.submit(sum, client.map(several, lists, pure=False), pure=False).result()


def tiles(client: Client, times: int) -> None:
    """Tiles that are smoothed and counted, as delayed calls."""
    from dask.delayed import delayed
    from scipy import ndimage

    def count(parts: list[int]) -> int:
        pictures = (np.random.default_rng(part).random((80, 80)) for part in parts)
        return sum(int((ndimage.gaussian_filter(one, 1.5) > 0.5).sum()) for one in pictures)

    lists = [list(range(i, min(i + times, 500))) for i in range(0, 500, times)]
    client.compute(delayed(sum)([delayed(count, pure=False)(parts) for parts in lists])).result()


def outer(client: Client, times: int) -> None:
    """Row sums of a product of an array with itself turned round, in small chunks."""
    import dask.array as da

    side = 80 * max(round(math.sqrt(times)), 1)
    values = da.random.default_rng(5).random((1_600, 1_600), chunks=(side, side))
    (values + values.T).sum(axis=1).max().compute()


def days(client: Client, times: int) -> None:
    """Means of a table that is cut by the hour."""
    import dask.datasets

    frame = dask.datasets.timeseries(end="2000-01-11", freq="2s", partition_freq=f"{times}h", seed=6)
    frame[["x", "y"]].abs().mean(split_every=8).compute()


#: By which the rules were tried, and six that were added when the rules were there.
PROGRAMS: dict[str, Callable[[Client, int], None]] = {
    "added": added,
    "table": table,
    "items": items,
    "calls": calls,
    "fits": fits,
    "picture": picture,
    "bins": bins,
    "names": names,
    "dice": dice,
    "tiles": tiles,
    "outer": outer,
    "days": days,
}
