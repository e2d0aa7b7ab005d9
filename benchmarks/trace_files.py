"""Trace files: 1 M tasks load in 3 s at most and take 300 bytes a task at most; beside numpy's savez_compressed.

    python -m benchmarks.trace_files [TASKS ...]

The runs are simulated, with keys as long as Dask's own. Each is saved and loaded three times, in turn with
the same columns as numpy saves them; medians are printed.
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.simulated_traces import large
from dask_efficiency import RunTrace, load_trace
from dask_efficiency.accounts.tables import Table, Texts

REPEATS = 3
MAX_SECONDS_A_MILLION = 3.0
MAX_BYTES_A_TASK = 300


def with_long_keys(trace: RunTrace) -> RunTrace:
    """The same with keys such as ``('load-0f1d...', 12, 345)``."""
    tokens = {prefix: hashlib.md5(prefix.encode()).hexdigest() for prefix in trace.prefixes}
    names = [trace.prefixes[i] for i in trace.tasks.prefix.tolist()]
    keys = (f"('{name}-{tokens[name]}', {i // 1000}, {i % 1000})" for i, name in enumerate(names))
    return replace(trace, keys=Texts.of(keys))


def arrays(trace: RunTrace) -> dict[str, Any]:
    """All columns of a trace by name."""
    tables = {name: getattr(trace, name) for name in RunTrace.__dataclass_fields__}
    columns = {
        f"{name}.{column}": values
        for name, table in tables.items()
        if isinstance(table, Table)
        for column, values in table.columns().items()
    }
    columns |= {"starts": trace.dependency_starts, "dependencies": trace.dependencies}
    return columns | {"block": trace.keys.block, "offsets": trace.keys.offsets}


def load_arrays(path: Path) -> dict[str, Any]:
    """What numpy saved, read in full."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def seconds(do: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    do()
    return time.perf_counter() - started


def measure(trace: RunTrace, folder: Path) -> dict[str, tuple[float, float, float]]:
    """Seconds to save and to load and bytes a task, ours and numpy's."""
    ours, numpys = folder / "run.trace", folder / "run.npz"
    columns = arrays(trace)
    times = [
        (
            seconds(lambda: trace.save(ours)),
            seconds(lambda: load_trace(ours)),
            seconds(lambda: np.savez_compressed(numpys, **columns)),
            seconds(lambda: load_arrays(numpys)),
        )
        for _ in range(REPEATS)
    ]
    save, load, their_save, their_load = (statistics.median(column) for column in zip(*times, strict=True))
    sizes = [path.stat().st_size / len(trace.tasks) for path in (ours, numpys)]
    return {"trace": (save, load, sizes[0]), "numpy": (their_save, their_load, sizes[1])}


def main() -> None:
    """Print a table, and end with 1 if the claim does not hold."""
    failed = False
    print(f"{'tasks':>9}  {'file':5}  {'save, s':>8}  {'load, s':>8}  bytes/task")
    for tasks in [int(text) for text in sys.argv[1:]] or [10_000, 100_000, 1_000_000]:
        trace = with_long_keys(large(tasks))
        with tempfile.TemporaryDirectory() as folder:
            found = measure(trace, Path(folder))
        for name, (save, load, nbytes) in found.items():
            print(f"{len(trace.tasks):9}  {name:5}  {save:8.2f}  {load:8.2f}  {nbytes:10.1f}")
        failed |= found["trace"][2] > MAX_BYTES_A_TASK
        failed |= found["trace"][1] > max(MAX_SECONDS_A_MILLION * tasks / 1e6, 0.5)
    sys.exit(failed)


if __name__ == "__main__":
    main()
