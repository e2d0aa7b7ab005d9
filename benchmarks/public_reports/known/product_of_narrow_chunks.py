"""A wide matrix, in chunks that are narrow, is multiplied by a tall one.

source: sgkit-dev/sgkit issue 390 (of the same kind: pangeo-data/pangeo issue 756)
date:   2020-11-19
seen:   a workflow of matrix products does not get faster with more workers; with other chunks it takes ten minutes
        instead of two hours.
cause:  chunks cut the axis that is summed over into many pieces: for each there is a partial product as large as the
        result, to be kept, sent and added up, which takes longer than the multiplication.
cure:   chunks that span this axis: few rows, all columns.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import MORE_MEMORY, MORE_WORKERS, TWO_BY_ONE, Expected, marked, scaled

CLUSTER = TWO_BY_ONE
ROWS, COLUMNS, RESULT, NARROW = scaled(6_000), 12_800, 500, 80

EXPECTED = Expected(
    cause="the summed axis is cut into many chunks, each with a partial product to send and add",
    place="the product, its tasks, or the computation",
    cure="chunks that span the summed axis",
    says=r"chunk|matmul|tensordot|product|transfer|partial|reduc|contract|overhead|moved|sum\b|sent|send|communicat"
    r"|(small|short|tiny|many) (\w+ )?tasks|copy|copies|memory",
    places=(*marked(__file__), r"matmul|tensordot|sum|dot|product"),
    cures=r"chunk|rechunk|bigger|larger|fewer|span|axis|blocks|float32|wide|longer tasks|contract",
    never={
        MORE_WORKERS: "both cores are busy with sums and transfers",
        MORE_MEMORY: "there is enough",
    },
)


def pattern(block_info: dict | None = None) -> np.ndarray:
    (first_row, last_row), (first_column, last_column) = block_info[None]["array-location"]
    rows, columns = np.arange(first_row, last_row), np.arange(first_column, last_column)
    return np.cos(rows)[:, None] * np.sin(columns)


def matrix(shape: tuple[int, int], chunks: tuple[int, int]) -> da.Array:
    return da.map_blocks(pattern, chunks=da.core.normalize_chunks(chunks, shape), dtype=float, meta=np.empty((0, 0)))


def bad(client: Client) -> float:
    wide = matrix((ROWS, COLUMNS), (ROWS // 4, NARROW))
    tall = matrix((COLUMNS, RESULT), (NARROW, RESULT))
    return float(da.square(wide @ tall).mean().compute())  # <- here


def good(client: Client) -> float:
    wide = matrix((ROWS, COLUMNS), (ROWS // 24, COLUMNS))
    tall = matrix((COLUMNS, RESULT), (COLUMNS, RESULT))
    return float(da.square(wide @ tall).mean().compute())
