"""Where couriers of a town stop: rides of each courier, cut into stops.

source: targomo.medium.com, "How we learned to love Dask and achieved a 40x speedup"
date:   2021-11-29
seen:   tracks of people were made into the points where they stayed, each person by itself; yet the threads exchanged
        data all the time and hit the limit of memory, instead of taking partition after partition.
cause:  the tracks are grouped by person with a function of the user's, for which Dask moves all rows between the
        workers, though the rows of a person are in one partition already.
cure:   work on each partition by itself.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
FILES = 16
COURIERS = 12
POINTS = scaled(62_000)

EXPECTED = Expected(
    cause="groupby.apply shuffles all rows, though each courier's are in one partition",
    place="the line of groupby and apply, or that which computes",
    cure="map_partitions, in which pandas groups",
    says=r"shuffl\w*|groupby.{0,30}apply|(mov|send|transfer|exchang)\w* .{0,50}(rows|data|partitions|workers)"
    r"|all[- ]to[- ]all"
    r"|p2p",
    places=(*marked(__file__),),
    cures=r"map_partitions|set_index|sorted=True|divisions|without (a |the )?shuffl|avoid (a |the )?shuffl"
    r"|(each|every|per|within) partition|partition by partition|already (sorted|partitioned|together)|local(ly)?",
    never={
        COMPUTED_AGAIN: "each ride is cut once",
        LONGER_TASKS: "there are few partitions, of megabytes",
        MORE_WORKERS: "they would exchange as much",
    },
)


def prepare() -> None:
    place = folder("couriers")
    rng = np.random.default_rng(14)
    rows = COURIERS * POINTS
    for file in range(FILES):
        courier = np.repeat(np.arange(COURIERS) + file * COURIERS, POINTS)
        second = np.tile(np.arange(POINTS) * 5.0, COURIERS)
        rides = (second // 600) % 3 > 0
        table = pd.DataFrame(
            {
                "courier": courier,
                "second": second,
                "east": np.cumsum(rng.normal(0, 8, rows) * rides),
                "north": np.cumsum(rng.normal(0, 8, rows) * rides),
                "speed": rng.random(rows).round(3),
                "heading": rng.random(rows).round(3),
                "climb": rng.random(rows).round(3),
                "charge": rng.random(rows).round(3),
                "signal": rng.random(rows).round(3),
                "load": rng.random(rows).round(3),
            }
        )
        table.to_parquet(place / f"couriers-{file:02d}.parquet")


def stops(track: pd.DataFrame) -> pd.DataFrame:
    """A row for each stop of one courier: when it began, how long it took, and what was carried."""
    track = track.sort_values("second")
    second, load = track["second"].to_numpy(), track["load"].to_numpy()
    stands = np.hypot(np.diff(track["east"]), np.diff(track["north"])) < 0.5
    edges = np.flatnonzero(np.diff(np.concatenate([[0], stands, [0]])))
    begin, end = edges[::2], edges[1::2]
    loads = np.add.reduceat(np.append(load, 0.0), np.stack([begin, end], axis=1).ravel())[::2]
    return pd.DataFrame({"begin": second[begin], "length": second[end] - second[begin], "load": loads / (end - begin)})


META = pd.DataFrame({"begin": [0.0], "length": [0.0], "load": [0.0]}).iloc[:0]


def stops_of_all(tracks: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([stops(track) for _, track in tracks.groupby("courier")])


def load_at_stops(found) -> float:
    long = found[found["length"] > 60]
    return float((long["length"] * long["load"]).sum().compute())  # <- here


def bad(client: Client) -> float:
    import dask.dataframe as dd

    tracks = dd.read_parquet(folder("couriers"))
    return load_at_stops(tracks.groupby("courier").apply(stops, meta=META))  # <- here


def good(client: Client) -> float:
    import dask.dataframe as dd

    tracks = dd.read_parquet(folder("couriers"))
    return load_at_stops(tracks.map_partitions(stops_of_all, meta=META))
