"""Programs as users write them, whose work is done by libraries: dataframes, xarray, scikit-learn and XGBoost.

Each prepares its data in a folder, and gives the work that is to be measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, get_client

#: What is to be measured, once its data is there.
Work = Callable[[], Any]

CITIES = ("Zürich", "London", "Nairobi", "São Paulo", "Kyoto", "New York", "Hà Nội", "Reykjavík")


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and the shape of its cluster."""

    prepare: Callable[[Client, Path, float], Work]
    about: str
    workers: int = 2
    threads: int = 2
    #: Modules that it needs, other than Dask.
    needs: tuple[str, ...] = ()


# -- a table of orders -----------------------------------------------------------------------------


def write_orders(folder: Path, files: int, rows: int) -> None:
    """Parquet files of orders with text as it comes from forms."""
    import pandas as pd

    for i in range(files):
        rng = np.random.default_rng(i)
        numbers = rng.integers(0, 50_000, rows)
        frame = pd.DataFrame(
            {
                "order": np.arange(rows) + i * rows,
                "customer": [f"  Customer-{number:06d}@Example.com " for number in numbers],
                "city": np.array(CITIES, dtype=object)[rng.integers(0, len(CITIES), rows)],
                "price": rng.gamma(2.0, 20.0, rows).round(2),
                "placed": pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 31_536_000, rows), unit="s"),
            }
        )
        frame.to_parquet(folder / f"orders-{i:03d}.parquet")


def spread(rows: Any) -> float:
    """Sum of the distances between the deciles of each hour."""
    hours = rows["x"].rolling(3600)
    return float((hours.quantile(0.9) - hours.quantile(0.1)).sum())


def timeseries_shuffle(client: Client, folder: Path, scale: float, *, salts: int = 1) -> Work:
    """Groups Dask's own timeseries, in which most rows have one key, or one of ``salts`` keys."""
    import pandas as pd

    begins = pd.Timestamp("2000-01-01")
    frame = dask.datasets.timeseries(begins, begins + pd.Timedelta(days=max(4, round(60 * scale))), seed=0)

    def work() -> Any:
        salted = -1 - ((frame["y"] + 1) / 2 * salts).astype(int)
        grouped = frame.assign(key=frame["id"].where(frame["x"] > 0.6, salted)).groupby("key")
        by_key = grouped.apply(spread, meta=("spread", float)).compute()
        return by_key.groupby(by_key.index.map(lambda key: max(key, -1))).sum()

    return work


# -- a climate data set ----------------------------------------------------------------------------


def mean_days(data: Any) -> Any:
    """The mean of each day of the year."""
    return data.groupby("time.dayofyear").mean()


def climatology(client: Client, folder: Path, scale: float, *, fused: bool = False) -> Work:
    """Means of days, with a task for each day of a chunk of 30; fused, with a task for a chunk of all days."""
    import dask.array as da
    import pandas as pd
    import xarray as xr

    def array(values: Any, **times: Any) -> Any:
        return xr.DataArray(values, dims=(*times, "lat", "lon"), coords=times)

    times = pd.date_range("2000-01-01", periods=max(730, round(3650 * scale)))
    chunks = (len(times), 45, 45) if fused else (30, 180, 180)
    data = array(da.random.default_rng(0).normal(15.0, 3.0, (len(times), 180, 180), chunks=chunks), time=times)
    means = array(da.zeros((366, 180, 180), chunks=(366, 45, 45)), dayofyear=range(1, 367))
    return lambda: (xr.map_blocks(mean_days, data, template=means) if fused else mean_days(data)).compute()


# -- models ----------------------------------------------------------------------------------------


def _table(rows: int, columns: int) -> tuple[Any, Any]:
    from sklearn.datasets import make_classification

    return make_classification(rows, columns, n_informative=columns // 2, random_state=0)


def joblib_search(client: Client, folder: Path, scale: float, *, whole_fits: bool = False) -> Work:
    """A grid search of scikit-learn, whose fits joblib gives to Dask, and their trees as well; or only whole fits."""
    import joblib
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    class InItsTask(RandomForestClassifier):
        def fit(self, *data: Any) -> Any:
            with joblib.parallel_config(backend="sequential"):
                return super().fit(*data)

        def predict_proba(self, *data: Any) -> Any:
            with joblib.parallel_config(backend="sequential"):
                return super().predict_proba(*data)

    features, labels = _table(max(500, round(4000 * scale)), 20)
    # A worker's client fails if another thread scatters by it while it connects (docs/upstream.md, the first message).
    for address in client.nthreads():
        client.submit(lambda: get_client().id, workers=[address], pure=False).result()

    def work() -> Any:
        forest = (InItsTask if whole_fits else RandomForestClassifier)(random_state=0)
        trees = [max(5, round(50 * scale)), max(10, round(100 * scale))]
        grid = {"forest__n_estimators": trees, "forest__max_depth": [4, 8, None]}
        with joblib.parallel_config(backend="dask"):
            model = Pipeline([("scaler", StandardScaler()), ("forest", forest)])
            return GridSearchCV(model, grid, cv=3, n_jobs=-1).fit(features, labels).best_score_

    return work


def xgboost_train(client: Client, folder: Path, scale: float) -> Work:
    """Boosted trees, which XGBoost trains on the cluster in threads of OpenMP."""
    import dask.array as da
    from xgboost import dask as on_dask

    features, labels = _table(max(20_000, round(200_000 * scale)), 30)

    def work() -> Any:
        rows = len(labels) // 8
        data = da.from_array(features, chunks=(rows, -1)), da.from_array(labels, chunks=rows)
        matrix = on_dask.DaskDMatrix(client, *data)
        settings = {"objective": "binary:logistic", "tree_method": "hist", "nthread": 2}
        trained = on_dask.train(client, settings, matrix, num_boost_round=max(10, round(60 * scale)))
        return on_dask.predict(client, trained, data[0]).mean().compute()

    return work


PROGRAMS = {
    "timeseries_shuffle": Program(
        timeseries_shuffle, "Dask's own timeseries, grouped by a key that most rows have", needs=("pandas", "pyarrow")
    ),
    "climatology": Program(climatology, "xarray's mean of each day of the year", needs=("xarray",)),
    "joblib_search": Program(joblib_search, "scikit-learn's grid search through joblib", needs=("sklearn",)),
    "xgboost_train": Program(xgboost_train, "XGBoost trains on the cluster", needs=("xgboost", "sklearn")),
}
