"""Tables of tasks made up for the tests: healthy workers, and what is done to one of them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd


def tasks(
    workers: int | Sequence[str] = 8,
    *,
    per_worker: int = 40,
    prefixes: Sequence[str] = ("load", "fit"),
    seconds: float = 2.0,
    noise: float = 0.1,
    share: float = 0.9,
    seed: int = 0,
) -> pd.DataFrame:
    """Tasks one after the other on each worker, with 5 % jitter of workers and lognormal tasks."""
    rng = np.random.default_rng(seed)
    names = [f"w{i:02}" for i in range(workers)] if isinstance(workers, int) else list(workers)
    rows: list[dict[str, Any]] = []
    for name in names:
        at = 0.0
        for number in range(per_worker):
            prefix = prefixes[number % len(prefixes)]
            took = seconds * (1 + prefixes.index(prefix)) * float(np.exp(noise * rng.standard_normal()))
            cpu = took * min(1.0, share * float(np.exp(0.02 * rng.standard_normal())))
            row = {"worker": name, "prefix": prefix, "start": at, "stop": at + took, "cpu_seconds": cpu}
            rows.append(row | {"key": f"{prefix}-{name}-{number}"})
            at += took
    return pd.DataFrame(rows)


def slowed(frame: pd.DataFrame, names: str | Sequence[str], times: float, *, cpu_too: bool = True) -> pd.DataFrame:
    """Lengthen the tasks of some workers by a factor, with their CPU time or by waiting."""
    return changed(frame, names, lambda rows: _longer(rows, times, cpu_too))


def changed(
    frame: pd.DataFrame, names: str | Sequence[str], change: Callable[[pd.DataFrame], pd.DataFrame]
) -> pd.DataFrame:
    """Change the rows of some workers."""
    its = frame.worker.isin([names] if isinstance(names, str) else list(names))
    return pd.concat([frame[~its], change(frame[its].copy())], ignore_index=True)


def _longer(rows: pd.DataFrame, times: float, cpu_too: bool) -> pd.DataFrame:
    rows["stop"] = rows.start + (rows.stop - rows.start) * times
    if cpu_too:
        rows["cpu_seconds"] *= times
    return rows
