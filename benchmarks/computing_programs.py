"""Programs that compute, after public workloads: each does what such a workload does, in code and data of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from dask.delayed import delayed
from distributed import Client

_Array = np.ndarray[Any, Any]


def _table(part: int, rows: int = 150_000) -> Any:
    import pandas as pd

    rng = np.random.default_rng(part)
    names = np.array([f"id{number:03}" for number in range(100)])
    columns = {"id": names[rng.integers(0, 100, rows)], "group": rng.integers(0, rows // 10, rows)}
    return pd.DataFrame(columns | {"v": rng.random(rows), "w": rng.integers(0, 100, rows)})


def group_bys(client: Client) -> None:
    """Questions of the db-benchmark of H2O: sums and means by few and by many groups."""
    import dask
    import dask.dataframe as dd

    table = dd.from_map(_table, range(14), meta=_table(0, 10))
    dask.compute(
        table.groupby("id").v.sum(split_out=1),
        table.groupby("id")[["v", "w"]].mean(split_out=1),
        table.groupby("group").agg({"v": "sum", "w": "max"}, split_out=1),
    )


def quadratic_mean(client: Client) -> None:
    """Means over time of the squares and the product of two fields, as of winds."""
    import dask
    import dask.array as da

    u, v = (da.random.default_rng(seed).normal(size=(800, 200, 200), chunks=(25, 200, 200)) for seed in (1, 2))
    dask.compute((u**2).mean(axis=0), (v**2).mean(axis=0), (u * v).mean(axis=0), da.sqrt(u**2 + v**2).max(axis=0))


def dot_product(client: Client) -> None:
    """A matrix times its transpose, and the sum."""
    import dask.array as da

    x = da.random.default_rng(3).random((3_000, 3_000), chunks=(750, 750))
    (x @ x.T).sum().compute()


def log_lines(client: Client) -> None:
    """Made-up lines of a web server, cut by a regular expression and counted: pure Python."""
    import dask.bag as db

    line = re.compile(r"(\S+) - - \[(.*?)\] \"(\w+) (\S+)\" (\d+) (\d+)")

    def write(part: int) -> list[str]:
        numbers = np.random.default_rng(part).integers(0, 200, (6_000, 3)).tolist()
        return [f'10.0.0.{a} - - [day {b}] "GET /page/{c}" {200 + a % 5} {b * c}' for a, b, c in numbers]

    def status(text: str) -> tuple[str, int]:
        found = line.match(text)
        assert found is not None
        return found[4], int(found[5])

    lines = db.from_sequence(range(48), npartitions=48).map(write).flatten()
    lines.map(status).filter(lambda pair: pair[1] < 203).pluck(0).frequencies(split_every=8).topk(5, key=1).compute()


def forest(client: Client) -> None:
    """Trees of a random forest as futures, and their votes."""
    from sklearn.tree import DecisionTreeClassifier

    def grow(seed: int) -> Any:
        rng = np.random.default_rng(seed)
        values = rng.random((4_000, 20))
        return DecisionTreeClassifier(max_features=6).fit(values, values[:, :3].sum(axis=1) + rng.random(4_000) > 2)

    def vote(tree: Any) -> _Array:
        found: _Array = tree.predict(np.random.default_rng(99).random((20_000, 20)))
        return found

    client.submit(sum, client.map(vote, client.map(grow, range(28), pure=False), pure=False), pure=False).result()


def climatology(client: Client) -> None:
    """Departures from the mean of each month of 40 years, and their spread."""
    import dask.array as da

    values = da.random.default_rng(4).normal(size=(40, 12, 120, 240), chunks=(2, 12, 60, 240))
    away = values - values.mean(axis=0, keepdims=True)
    (away / away.std(axis=0, keepdims=True)).clip(-3, 3).var(axis=(0, 1)).compute()


def trips(client: Client) -> None:
    """Trips of taxis, written and read as CSV, and mean tips by hour and passengers."""
    import io

    import dask.dataframe as dd
    import pandas as pd

    def read(part: int) -> Any:
        rng, rows = np.random.default_rng(part), 20_000
        start = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 10**7, rows), unit="s")
        table = pd.DataFrame({"at": start, "people": rng.integers(1, 6, rows), "tip": rng.random(rows).round(3)})
        found = pd.read_csv(io.StringIO(table.to_csv(index=False)), parse_dates=["at"])
        return found.assign(hour=found["at"].dt.hour)

    table = dd.from_map(read, range(24), meta=read(0).iloc[:0])
    table[table.tip > 0.1].groupby(["hour", "people"]).tip.mean(split_out=1).compute()


def kmeans(client: Client) -> None:
    """Four rounds of k-means: distances in parts, new centres from all."""

    def points(part: int) -> _Array:
        return np.random.default_rng(part).normal(size=(20_000, 16))

    def nearest(own: _Array, centres: _Array) -> tuple[_Array, _Array]:
        off = (own**2).sum(axis=1)[:, None] - 2 * own @ centres.T + (centres**2).sum(axis=1)
        of = off.argmin(axis=1)
        count = np.bincount(of, minlength=len(centres))
        return np.stack([np.bincount(of, own[:, i], len(centres)) for i in range(own.shape[1])], axis=1), count

    def moved(parts: list[tuple[_Array, _Array]]) -> _Array:
        total, count = (sum(values) for values in zip(*parts, strict=True))
        centres: _Array = total / np.maximum(count, 1)[:, None]
        return centres

    own = client.map(points, range(24), pure=False)
    centres: Any = np.random.default_rng(9).normal(size=(24, 16))
    for _ in range(4):
        centres = client.submit(moved, client.map(nearest, own, centres=centres, pure=False), pure=False)
    centres.result()


def images(client: Client) -> None:
    """Pictures that are smoothed, cut at a threshold and counted: what lies together is one object."""
    from scipy import ndimage

    def count(part: int) -> int:
        picture = np.random.default_rng(part).random((500, 500))
        smooth = ndimage.gaussian_filter(ndimage.median_filter(picture, 3), 2)
        return int(ndimage.label(smooth > smooth.mean())[1])

    counts = [delayed(count, pure=False)(part) for part in range(40)]
    client.compute(delayed(sum)(counts)).result()


def orders(client: Client) -> None:
    """Orders joined with their customers and summed by segment, as TPC-H asks."""
    import dask
    import dask.dataframe as dd

    lines = dd.from_map(_table, range(10), meta=_table(0, 10))
    customers = dd.from_map(_table, range(100, 104), rows=15_000, meta=_table(0, 10)).rename(columns={"w": "segment"})
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        joined = lines.merge(customers[["group", "segment"]], on="group")
        joined.assign(price=joined.v * joined.w).groupby("segment").price.agg(
            ["sum", "mean", "count"], split_out=1
        ).compute()


#: By which rules were chosen, and by which they were judged afterwards.
CHOOSING: dict[str, Callable[[Client], None]] = {
    "group_bys": group_bys,
    "quadratic_mean": quadratic_mean,
    "dot_product": dot_product,
    "log_lines": log_lines,
    "forest": forest,
}
JUDGING: dict[str, Callable[[Client], None]] = {
    "climatology": climatology,
    "trips": trips,
    "kmeans": kmeans,
    "images": images,
    "orders": orders,
}
