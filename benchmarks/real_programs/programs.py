"""The programs: each prepares its data in a folder, and gives what is to be measured.

They are of the shapes that the examples of Dask, xarray, scikit-learn, scikit-image and XGBoost have: little code, and
nearly all time in libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client

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
    #: Modules that it needs beside Dask.
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


def etl(client: Client, folder: Path, scale: float, *, arrow_strings: bool) -> Work:
    """Reads parquet, cleans text, joins, aggregates, writes parquet."""
    import dask.dataframe as dd
    import pandas as pd

    orders, cleaned = folder / "orders", folder / "cleaned"
    orders.mkdir()
    write_orders(orders, max(4, round(16 * scale)), 200_000)
    countries = pd.DataFrame({"city": CITIES, "country": ("CH", "GB", "KE", "BR", "JP", "US", "VN", "IS")})

    def work() -> Any:
        with dask.config.set({"dataframe.convert-string": arrow_strings}):
            frame = dd.read_parquet(str(orders))
            frame["customer"] = frame["customer"].str.strip().str.lower()
            frame["number"] = frame["customer"].str.extract(r"customer-(\d+)@", expand=False).astype("int64")
            frame["city"] = frame["city"].str.upper()
            upper = countries.assign(city=countries["city"].str.upper())
            frame = frame[frame["price"] > 5.0].merge(upper, on="city", how="left")
            frame["month"] = frame["placed"].dt.month
            frame.to_parquet(str(cleaned), write_index=False)
            written = dd.read_parquet(str(cleaned))
            return written.groupby(["country", "month"])["price"].agg(["sum", "mean", "count"]).compute()

    return work


def etl_objects(client: Client, folder: Path, scale: float) -> Work:
    """The ETL with strings that are Python objects."""
    return etl(client, folder, scale, arrow_strings=False)


def etl_arrow(client: Client, folder: Path, scale: float) -> Work:
    """The ETL with Arrow's strings."""
    return etl(client, folder, scale, arrow_strings=True)


def spread(rows: Any) -> float:
    """How far the deciles of an hour are apart, in sum."""
    hours = rows["x"].rolling(3600)
    return float((hours.quantile(0.9) - hours.quantile(0.1)).sum())


def timeseries_shuffle(client: Client, folder: Path, scale: float, *, salts: int = 1) -> Work:
    """Groups Dask's own timeseries, of whose rows most have one key, or one of so many."""
    import dask
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


def zarr_reduction(client: Client, folder: Path, scale: float) -> Work:
    """Monthly anomalies of a compressed array of days, and how much they vary."""
    import pandas as pd
    import xarray as xr

    days = max(120, round(1460 * scale))
    rng = np.random.default_rng(0)
    season = 10 * np.sin(np.arange(days) * 2 * np.pi / 365.25)
    field = rng.normal(15.0, 3.0, (days, 180, 360)).round(1) + season[:, None, None]
    data = xr.Dataset(
        {"temperature": (("time", "lat", "lon"), field.astype("float32"))},
        coords={"time": pd.date_range("2020-01-01", periods=days)},
    )
    place = str(folder / "climate.zarr")
    data.chunk(time=20, lat=180, lon=180).to_zarr(place)

    def work() -> Any:
        temperature = xr.open_zarr(place)["temperature"]
        by_month = temperature.groupby("time.month")
        anomalies = by_month - by_month.mean("time")
        return anomalies.std("time").compute()

    return work


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

    def work() -> Any:
        forest = (InItsTask if whole_fits else RandomForestClassifier)(random_state=0)
        grid = {"forest__n_estimators": [50, 100], "forest__max_depth": [4, 8, None]}
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


# -- pictures --------------------------------------------------------------------------------------


def segment(path: str) -> int:
    """How many cells a picture has."""
    from skimage import filters, io, measure, morphology, segmentation

    picture = io.imread(path)
    smooth = filters.gaussian(picture, sigma=3)
    cells = morphology.opening(smooth > filters.threshold_otsu(smooth), morphology.disk(5))
    labels = segmentation.clear_border(measure.label(cells))
    return sum(1 for region in measure.regionprops(labels) if region.area > 50)


def images(client: Client, folder: Path, scale: float) -> Work:
    """Counts the cells in pictures with scikit-image."""
    from skimage import data, io

    paths = []
    cells = (data.binary_blobs(1024, blob_size_fraction=0.03, rng=0) * 200).astype("uint8")
    for i in range(max(8, round(48 * scale))):
        noise = np.random.default_rng(i).integers(0, 55, cells.shape, dtype="uint8")
        paths.append(str(folder / f"{i:03d}.png"))
        io.imsave(paths[-1], np.roll(cells, 20 * i, axis=0) + noise, check_contrast=False)
    return lambda: client.gather(client.map(segment, paths, pure=False))


PROGRAMS = {
    "etl_objects": Program(
        etl_objects, "parquet with strings as objects: clean, join, aggregate, write", needs=("pandas", "pyarrow")
    ),
    "etl_arrow": Program(etl_arrow, "the same with Arrow's strings", needs=("pandas", "pyarrow")),
    "timeseries_shuffle": Program(
        timeseries_shuffle, "Dask's own timeseries, grouped by a key that most rows have", needs=("pandas", "pyarrow")
    ),
    "climatology": Program(climatology, "xarray's mean of each day of the year", needs=("xarray",)),
    "zarr_reduction": Program(
        zarr_reduction, "xarray reads zarr, takes anomalies and reduces them", needs=("xarray", "zarr")
    ),
    "joblib_search": Program(joblib_search, "scikit-learn's grid search through joblib", needs=("sklearn",)),
    "xgboost_train": Program(xgboost_train, "XGBoost trains on the cluster", needs=("xgboost", "sklearn")),
    "images": Program(images, "scikit-image segments pictures", needs=("skimage",)),
}
