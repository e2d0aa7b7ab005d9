"""Readings of air quality are tidied up and written to JSON files, one for each station and month.

source: python/cpython issue 129711; of the same kind: project-receptor/python-receptor pull request 158,
        pytest-dev/pytest pull request 6206
date:   2025-02-06 (pull request 158: 2020-03-09; pull request 6206: 2019-11-16)
seen:   to write a file with json.dump takes several times as long as to make the text by json.dumps and write that.
cause:  json.dump goes through the object piece by piece, in Python, and writes each piece by itself; the encoder in C
        is only for a text as a whole.
cure:   write the text that json.dumps makes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
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
STATIONS, READINGS = scaled(140), 12_000

EXPECTED = Expected(
    cause="json.dump encodes piece by piece in Python, and makes a write of each piece",
    place="json.dump in dumped",
    cure="file.write(json.dumps(...)), which encodes in C (or another format or library)",
    says=r"json\w*\W+(\w+\W+){0,10}(in python|pure python|piece|slow|small (pieces|writes)|one by one|each (value|item"
    r"|number)|encod(es|ing)|serializ(es|ing)|iterat)|(encod|serializ|format|writ)(es|e|ing)\W+(\w+\W+){0,5}json\b"
    r"|python encoder|(many|thousands|millions)( of)?( small| tiny)? writes|(c|fast) encoder",
    places=(*marked(__file__), function("dumped"), function("written"), r"\bjson\b|iterencode"),
    cures=r"\bdumps\b|orjson|\bujson|msgspec|parquet|binary|arrow|as a whole|at once|one (text|string|write|call)"
    r"|string|\bcsv\b|(other|faster|another)\W+(\w+\W+){0,3}(format|library|encoder)|to_json",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take tenths of a second",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none",
        r"(?i)(faster|slow|busy) (disk|storage)": "it is not the disk",
    },
)


def tidied(station: int) -> list[dict[str, Any]]:
    """Readings of a station without gaps and outliers."""
    rng = np.random.default_rng(station)
    values = rng.gamma(3.0, 8.0, READINGS).round(1)
    kept = np.flatnonzero(values < np.quantile(values, 0.995))
    return [
        {"at": hour, "pm10": value, "valid": True, "flags": [station % 5, hour % 3], "unit": "ug/m3"}
        for hour, value in zip(kept.tolist(), values[kept].tolist(), strict=True)
    ]


def dumped(readings: list[dict[str, Any]], place: Path) -> None:
    with place.open("w") as file:
        json.dump(readings, file)  # <- here


def dumped_as_a_whole(readings: list[dict[str, Any]], place: Path) -> None:
    place.write_text(json.dumps(readings))


def written(station: int, write: Callable[[list[dict[str, Any]], Path], None]) -> int:
    """Size of the file of a station."""
    place = folder("readings_to_json") / f"station-{station}.json"
    write(tidied(station), place)  # <- here
    return place.stat().st_size


def sizes(client: Client, write: Callable[[list[dict[str, Any]], Path], None]) -> float:
    return float(sum(client.gather(client.map(written, range(STATIONS), write=write))))


def bad(client: Client) -> float:
    return sizes(client, dumped)


def good(client: Client) -> float:
    return sizes(client, dumped_as_a_whole)
