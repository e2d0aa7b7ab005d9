"""Text files whose columns are separated by two characters are read with the parser that is written in Python.

source: dask/dask issue 880 (a separator of several characters needs engine="python"); dask/dask issue 2027, where it is
        said to be slower; the same for pandas in pandas-dev/pandas issue 10208 (ratings separated by "::")
date:   2015-12-14 (the others 2017-03-01 and 2015-05-26)
seen:   read_csv of files with a separator like "::" warns of falling back to the Python engine, and takes ten times as
        long as with files of the same size that have commas.
cause:  a separator of more than one character is a regular expression to pandas, which only its Python parser knows:
        it splits line by line in Python objects.
cure:   a separator of one character with the C parser: read "::" as ":" with empty columns between, which usecols
        leaves out (or rewrite the files, once).
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas",)
CLUSTER = TWO_BY_ONE
FILES, RATINGS = 8, scaled(260_000)
NAMES = ["user", "film", "stars", "when"]

EXPECTED = Expected(
    cause="nearly all time goes into parsing text with pandas' Python parser (engine='python'), because the separator"
    " has two characters; the C parser is ten times faster",
    place="the read_csv() (its tasks)",
    cure="engine='c' with a separator of one character (and usecols), or the pyarrow engine, or rewrite the"
    " files once"
    " (one-character separator, Parquet)",
    says=r"python.?(parser|engine)|engine|parser|pars(e|es|ed|ing)\b|separator|\bsep\b|regular expression"
    r"|\bregex|read_csv"
    r"|\bcsv\b|text",
    places=(*marked(__file__), r"read.?csv", r"python_parser", function("bad"), function("stars")),
    cures=r"engine|\bc parser|one.character|single.character|another (separator|format)|separator|\bsep\b"
    r"|pyarrow|parquet"
    r"|binary|columnar|rewrite|convert",
    never={
        LONGER_TASKS: "each takes a second",
        MORE_MEMORY: "there is enough",
        r"(?i)disk is slow|slow disk|faster disk|waiting for the disk": "it is CPU time",
        r"(?i)computed again": "each file is read once",
    },
)


def prepare() -> None:
    for number in range(FILES):
        rng = np.random.default_rng(number)
        columns = [
            rng.integers(1, 70_000, RATINGS),
            rng.integers(1, 11_000, RATINGS),
            rng.integers(1, 11, RATINGS),
            rng.integers(800_000_000, 1_200_000_000, RATINGS),
        ]
        lines = ("::".join(map(str, row)) for row in zip(*(column.tolist() for column in columns), strict=True))
        (folder("ratings") / f"ratings-{number}.dat").write_text("\n".join(lines) + "\n")


def files() -> str:
    return str(folder("ratings") / "ratings-*.dat")


def stars(ratings: dd.DataFrame) -> float:
    """Mean of the films' mean stars, and a little of the other columns."""
    by_film = ratings.groupby("film")[["stars", "user", "when"]].mean().compute()
    return float(by_film["stars"].mean() + by_film["user"].mean() + by_film["when"].mean() / 1e6)


def bad(client: Client) -> float:
    ratings = dd.read_csv(files(), sep="::", engine="python", header=None, names=NAMES, blocksize=None)  # <- here
    return stars(ratings)


def good(client: Client) -> float:
    names = ["user", "_1", "film", "_2", "stars", "_3", "when"]
    ratings = dd.read_csv(files(), sep=":", header=None, names=names, usecols=NAMES, blocksize=None)
    return stars(ratings)
