"""Kineto's files, of one rank or of many, from wherever they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from dask_efficiency.kineto.read import read_rank
from dask_efficiency.kineto.trace import KinetoTrace


def load_kineto(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    execution_trace: str | os.PathLike[str] | None = None,
    **storage_options: Any,
) -> KinetoTrace:
    """Read what ``torch.profiler`` wrote."""
    import fsspec

    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    ranks = []
    for path in given:
        with fsspec.open(os.fspath(path), "rb", compression=None, **storage_options) as file:
            ranks.append(read_rank(file, os.fspath(path)))
    return KinetoTrace(tuple(sorted(ranks, key=lambda trace: trace.rank)))
