"""Extent: how many rows of each kind a document has room for, and whether it has figures."""

from __future__ import annotations

from dataclasses import dataclass

from dask_efficiency.show.figures import NAME_LENGTH

#: Rows of a table that is folded away.
MAX_ROWS = 250


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows of each kind; and what only a page has."""

    #: Of more workers or GPUs, only those that did least are listed.
    workers: int
    gpus: int
    prefixes: int
    gpu_prefixes: int
    kernels: int
    #: Characters of a kernel's name.
    kernel_name: int
    #: Whether there are drawings, what few will read, and whole tables, folded away.
    drawn: bool


#: What fits a screen.
SCREEN = Extent(workers=8, gpus=8, prefixes=8, gpu_prefixes=8, kernels=8, kernel_name=NAME_LENGTH, drawn=False)

#: What fits a page.
PAGE = Extent(workers=30, gpus=16, prefixes=20, gpu_prefixes=20, kernels=20, kernel_name=64, drawn=True)
