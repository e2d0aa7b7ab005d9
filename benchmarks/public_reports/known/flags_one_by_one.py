"""Three flags are made from one lazily computed column with a NumPy function, one after another.

source: dask/dask issue 2614
date:   2017-08-17
seen:   a line profile of a script that reads a large CSV with dask.dataframe: reading and comparing cost nothing, but
        each of three equal calls of a NumPy function on the lazy comparison took 43 to 48 s. The person asks whether
        Dask does a task again which it has done already.
cause:  a NumPy function does not build on the graph; it converts the Dask series to an array, that is, it computes it
        on the spot, from the file on, and Dask keeps nothing of it. Three calls are three whole computations (and each
        sends the whole column to the client).
cure:   stay lazy (the methods of the series, dask.array, or NumPy inside map_partitions) and compute everything
        together, once; or persist the shared part. (The answer in the thread was not among what could be read; this
        is what the profile of the report asks for.)

The time is CPU time of the workers, spent several times over.
"""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_ONE
FILES, ROWS = 8, scaled(60_000)
NEAR, FAR = 2.0, 6.0

EXPECTED = Expected(
    cause="the lazy column is computed anew for every flag: NumPy's function turns the Dask series into an array at"
    " once,"
    " so the reading of the files and the distances are done three times (three separate computations of the same"
    " graph), and the whole column travels to the client each time",
    place="the np.where calls in bad(); as object: the series `km` (read_csv and the distance), computed three times",
    cure="keep the flags lazy (series methods, or np.where inside map_partitions) and compute them together in one"
    " dask.compute; or persist the column once before it is used three times",
    says=r"again|anew|(three|3|several|many|\d+) (separate )?(times|computations|computes|graphs|runs)|thrice|repeat"
    r"|re-?(read|comput|run|execut|pars)|more than once|once more"
    r"|same (work|tasks?|results?|computations?|graph|column|data)"
    r"|separate(ly)? comput|not (be )?lazy|numpy.{0,60}(comput|array|once|immediately)|__array__"
    r"|(for|with) (each|every) (flag|call)",
    places=(
        *marked(__file__),
        function("distance"),
        function("distances"),
        function("km"),
        r"(np|numpy)\.where|__array__|read_csv",
    ),
    cures=r"lazy|lazily|together|one (dask\.)?comput|single comput|persist|\bonce\b|map_partitions|keep|reuse|re-use"
    r"|dask\.array|at once",
    never={
        LONGER_TASKS: "the tasks are long enough",
        r"(?i)graph is (too )?large": "it is small",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
    },
)


def prepare() -> None:
    rng = np.random.default_rng(1)
    for number in range(FILES):
        frame = pd.DataFrame(
            {name: rng.uniform(-0.1, 0.1, ROWS).round(6) for name in ("from_lat", "from_lon", "to_lat", "to_lon")}
        )
        frame["driver"] = rng.integers(0, 500, ROWS)
        frame["note"] = "paid in cash, no receipt"
        frame.to_csv(folder("rides") / f"rides-{number:02d}.csv", index=False)


def distance(rides: pd.DataFrame) -> pd.Series:
    """Street distance in km, summed up over many small steps of the ride."""
    a, b = np.radians(rides.from_lat.to_numpy()), np.radians(rides.to_lat.to_numpy())
    turn = np.radians(rides.to_lon.to_numpy() - rides.from_lon.to_numpy())
    total = np.zeros(len(rides))
    for step in np.linspace(0.0, 1.0, 60):
        bend = np.sin((b - a) / 2 * step) ** 2 + np.cos(a) * np.cos(b * step) * np.sin(turn * step / 2) ** 2
        total += np.arcsin(np.sqrt(bend))
    return pd.Series(total / 30 * 6371, index=rides.index, name="km")


def distances() -> dd.Series:
    rides = dd.read_csv(str(folder("rides") / "rides-*.csv"), blocksize=None)
    return rides.map_partitions(distance, meta=pd.Series([], dtype="float64", name="km"))


def weighed(near: int, far: int, usual: int) -> float:
    """All three counts in one number."""
    return near + 2 * far + 3 * usual


def bad(client: Client) -> float:
    km = distances()
    near = np.where(km < NEAR, 1, 0)  # <- here
    far = np.where(km > FAR, 1, 0)  # <- here
    usual = np.where((km >= NEAR) & (km <= FAR), 1, 0)  # <- here
    return weighed(*(int(flag.sum()) for flag in (near, far, usual)))


def good(client: Client) -> float:
    km = distances()
    near = (km < NEAR).astype("int64")
    far = (km > FAR).astype("int64")
    usual = ((km >= NEAR) & (km <= FAR)).astype("int64")
    return weighed(*map(int, dask.compute(near.sum(), far.sum(), usual.sum())))
