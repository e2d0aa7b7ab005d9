"""Six more programs with a knob, written after the rules for intervals; half have tasks of 5 to 50 ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from distributed import Client


def sorted_rows(client: Client, times: int) -> None:
    """Medians of the rows of an array: sorting, in 200 blocks of 8 ms."""
    import dask.array as da

    values = da.random.default_rng(11).random((20_000, 1_000), chunks=(100 * times, 1_000))
    da.median(values, axis=1).sum().compute()


def products(client: Client, times: int) -> None:
    """Largest eigenvalues of the covariances of 240 groups of samples, as calls by blocks."""
    import dask.array as da

    def largest(block: Any) -> Any:
        return np.array([np.linalg.eigvalsh(one.T @ one)[-1] for one in block])

    samples = da.random.default_rng(12).normal(size=(240, 400, 60), chunks=(times, 400, 60))
    samples.map_blocks(largest, dtype=float, drop_axis=(1, 2)).max().compute()


def joined(client: Client, times: int) -> None:
    """Orders with the prices of their articles, and sums by article, in 200 partitions."""
    import dask.dataframe as dd
    import pandas as pd

    prices = pd.DataFrame({"article": np.arange(5_000), "price": np.random.default_rng(13).random(5_000)})

    def read(part: int) -> Any:
        rng = np.random.default_rng(part)
        articles = rng.integers(0, 5_000, 5_000 * times)
        return pd.DataFrame({"article": articles, "pieces": rng.integers(1, 9, len(articles))})

    orders = dd.from_map(read, range(-(-200 // times)), meta=read(0).iloc[:0]).merge(prices, on="article")
    (orders.pieces * orders.price).sum().compute()


def words(client: Client, times: int) -> None:
    """Words counted in a bag of 240 pages: pure Python, 15 ms each."""
    import dask.bag as db

    def write(part: int) -> list[str]:
        rng = np.random.default_rng(part)
        return [" ".join(f"word{number}" for number in rng.integers(0, 300, 40).tolist()) for _ in range(300 * times)]

    parts = -(-240 // times)
    pages = db.from_sequence(range(parts), npartitions=parts).map(write).flatten()
    pages.map(str.split).flatten().frequencies().topk(10, key=1).compute()


def packed(client: Client, times: int) -> None:
    """Blocks of bytes that are packed and hashed, as 300 futures."""

    def pack(seed: int) -> int:
        import hashlib
        import zlib

        given = (np.random.default_rng(seed).integers(0, 20, 150_000) ** 2 % 251).astype(np.uint8).tobytes()
        return len(zlib.compress(given)) + hashlib.sha256(given).digest()[0]

    def several(seeds: list[int]) -> int:
        return sum(map(pack, seeds))

    lists = [list(range(i, min(i + times, 300))) for i in range(0, 300, times)]
    client.submit(sum, client.map(several, lists, pure=False), pure=False).result()


def guesses(client: Client, times: int) -> None:
    """A fitted model that guesses the classes of 400 small tables, as delayed calls on one model."""
    from dask.delayed import delayed

    rng = np.random.default_rng(14)
    known, labels = rng.random((400, 10)), rng.integers(0, 4, 400)

    def guess(model: tuple[Any, Any], parts: list[int]) -> int:
        given, classes = model
        rows = np.concatenate([np.random.default_rng(part).random((60, 10)) for part in parts])
        nearest = ((rows[:, None, :] - given[None, :, :]) ** 2).sum(axis=2).argpartition(5, axis=1)[:, :5]
        return int(sum(np.bincount(classes[one]).argmax() for one in nearest))

    model = delayed((known, labels))
    lists = [list(range(i, min(i + times, 400))) for i in range(0, 400, times)]
    client.compute(delayed(sum)([delayed(guess, pure=False)(model, parts) for parts in lists])).result()


#: None of them was run before the rules were final.
MORE: dict[str, Callable[[Client, int], None]] = {
    "sorted": sorted_rows,
    "products": products,
    "joined": joined,
    "words": words,
    "packed": packed,
    "guesses": guesses,
}
