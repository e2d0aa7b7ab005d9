"""Cells get a score for each of many sets of genes, from a sparse matrix of counts.

source: martinjzhang/scDRS pull request 118; of the same kind: scverse/anndata-rs issue 5, LKremer/scbs pull request 2
date:   2025-06-05 (issue 5: 2023-03-15; pull request 2: 2021-07-16)
seen:   to take the columns of a set of genes is slow; with the matrix in CSC format it is much faster.
cause:  the matrix is stored by rows (CSR): each choice of columns goes through all counts of all cells.
cure:   convert it to CSC once, before the loop over the sets.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from distributed import Client
from scipy import sparse

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
    function,
    marked,
    scaled,
)

NEEDS = ("scipy",)
CLUSTER = TWO_BY_ONE
SAMPLES, CELLS, GENES, COUNTS_A_CELL = scaled(12), 2_500, 12_000, 700
SETS, GENES_A_SET = 300, 40

EXPECTED = Expected(
    cause="choosing columns of a matrix in CSR format goes through all of its entries, once for each set of genes",
    place="counts[:, genes] in score, called from scores_of_sample",
    cure="convert the matrix to CSC once, before the loop",
    says=r"\bcs[rc]\b.{0,80}(row|column|slow|format|index|slic|all|scan|convert)"
    r"|(column|row)s?\b.{0,60}(sparse|slow|index|select|cho|format|order|stored)"
    r"|(sparse|index\w*|slic\w+|select\w*).{0,60}(columns?|by rows?|format|layout)",
    places=(*marked(__file__), function("score"), function("scores_of_sample"), function("by_rows")),
    cures=r"\bcsc\b|tocsc|column[- ](wise|major|oriented|based|format)|(other|different) (sparse )?format|convert"
    r"|transpos|matrix product|multiply",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take seconds",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
        COMPUTED_AGAIN: "nothing is computed twice",
    },
)


def counts_of(sample: int) -> sparse.csr_array:
    """Counts of a sample's cells, by rows."""
    rng = np.random.default_rng(sample)
    step = GENES // COUNTS_A_CELL
    columns = np.arange(COUNTS_A_CELL) * step + rng.integers(0, step, (CELLS, COUNTS_A_CELL))
    values = rng.integers(1, 9, columns.size).astype(np.float32)
    starts = np.arange(CELLS + 1) * COUNTS_A_CELL
    return sparse.csr_array((values, columns.ravel(), starts), shape=(CELLS, GENES))


def gene_sets() -> list[np.ndarray]:
    rng = np.random.default_rng(99)
    return [rng.choice(GENES, GENES_A_SET, replace=False) for _ in range(SETS)]


def by_rows(counts: sparse.csr_array) -> sparse.csr_array:
    return counts


def by_columns(counts: sparse.csr_array) -> sparse.csc_array:
    return counts.tocsc()


def score(counts: sparse.sparray, genes: np.ndarray) -> float:
    """Spread of the cells' mean counts of some genes."""
    chosen = counts[:, genes]  # <- here
    return float(np.asarray(chosen.sum(axis=1)).std() / len(genes))


def scores_of_sample(sample: int, layout: Callable[[sparse.csr_array], sparse.sparray]) -> float:
    counts = layout(counts_of(sample))
    return sum(score(counts, genes) for genes in gene_sets())  # <- here


def bad(client: Client) -> float:
    return sum(client.gather(client.map(scores_of_sample, range(SAMPLES), layout=by_rows)))


def good(client: Client) -> float:
    return sum(client.gather(client.map(scores_of_sample, range(SAMPLES), layout=by_columns)))
