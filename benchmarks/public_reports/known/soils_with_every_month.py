"""Files of months have the rain of the month, and the soil of the country as well; water in the ground is added up.

source: pydata/xarray issue 438; of the same kind: xCDAT/xcdat issue 394, pydata/xarray issue 1823 (its comment of
        2019-05-03)
date:   2015-06-18 (394: 2022-11-29)
seen:   when many files are opened as one, variables that do not depend on time get a time dimension too; what was a
        description of the grid is then as long as the series.
cause:  data_vars="all" joins the fixed soil of all files along the months, so it is read, decompressed and worked on
        for each month, though it is the same in all of them.
cure:   data_vars="minimal" with compat="override": what has no month is taken from the first file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
NEEDS = ("xarray", "h5netcdf")
MONTHS, LAYERS, SIDE = scaled(64), 16, 640

EXPECTED = Expected(
    cause="the soil, which is the same in all files, is joined along the months, so it is read and worked on once for"
    " each month",
    place="open_mfdataset in months_of_country, or capacity, or the computation in water",
    cure='data_vars="minimal" and compat="override"',
    says=r"data_vars|\b(all|every|each) (of the )?(files?|months?)\b|(same|equal|identical|static|constant"
    r"|fixed)\W+(\w+\W+)"
    r"{0,3}(data|variables?|values|results?|work|arrays?|soil|tasks)|(twice|again|repeated(ly)?|\d+ times|many"
    r" times|more"
    r" than once|several times|times over)|duplicat|(broadcast|expand|repeat|concatenat|join)\w* (along|over|for)"
    r"|re-?(read|comput|load)\w*|(decompress|zlib|inflat|read)\w*\W+(\w+\W+){0,6}(soil|layers?)",
    places=(
        *marked(__file__),
        function("months_of_country"),
        function("capacity"),
        function("water"),
        function("open_mfdataset"),
        r"open_dataset",
    ),
    cures=r"data_vars|minimal|override|first file|(once|one) (for|only|file|copy)?|without the months|drop_variables"
    r"|separate(ly)?|apart|only once|\bonce\b",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take tenths of a second",
        MORE_MEMORY: "there is enough",
        LOCK: "with one thread a process nobody waits for that of HDF5",
    },
)


def prepare() -> None:
    place = folder("soils")
    grains = np.random.default_rng(9).integers(0, 4000, (LAYERS, SIDE, SIDE)).astype("f4") / 4000
    for month in range(MONTHS):
        rain = np.random.default_rng([9, month]).gamma(2.0, 30.0, (1, SIDE, SIDE)).astype("f4")
        data = xr.Dataset(
            {"rain": (("month", "y", "x"), rain), "grains": (("layer", "y", "x"), grains)}, coords={"month": [month]}
        )
        encoding = {name: {"zlib": True, "complevel": 1, "chunksizes": data[name].shape} for name in ("rain", "grains")}
        data.to_netcdf(place / f"month_{month:02}.nc", engine="h5netcdf", encoding=encoding)


def months_of_country(files: list[Path], how: dict[str, Any]) -> xr.Dataset:
    return xr.open_mfdataset(  # <- here
        files,
        engine="h5netcdf",
        combine="nested",
        concat_dim="month",
        join="override",
        coords="minimal",
        chunks={},
        **how,
    )


def capacity(grains: xr.DataArray) -> xr.DataArray:
    """Water that the soil can hold, of the shares of fine grains in its layers."""
    suction = np.exp(-2.5 * grains) + np.sqrt(grains) * 0.3
    return (suction * 40).sum("layer")  # <- here


def water(how: dict[str, Any]) -> float:
    """Mean water in the ground."""
    files = sorted(folder("soils").glob("*.nc"))
    with months_of_country(files, how) as country:  # <- here
        held = np.minimum(country.rain, capacity(country.grains))
        return float(held.mean(dtype=float).compute())  # <- here


def bad(client: Client) -> float:
    return water({"data_vars": "all", "compat": "no_conflicts"})  # <- here


def good(client: Client) -> float:
    return water({"data_vars": "minimal", "compat": "override"})
