"""Tables of every shape: machines that come and go, metrics that are missing, constant, rare, huge, or no numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import strategies as st

STEPS = (1.0, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0)

#: Values of a metric, of shape (samples,), from a generator, the number of samples and a level.
METRICS = {
    "usual": lambda random, count, level: level + random.normal(0, 1, count),
    "constant": lambda random, count, level: np.full(count, level),
    "none": lambda random, count, level: np.full(count, np.nan),
    "rare": lambda random, count, level: np.where(random.random(count) < 0.05, level, 0.0),
    "signed": lambda random, count, level: random.choice([-level, 0.0, 0.0, level], count),
    "gaps": lambda random, count, level: np.where(random.random(count) < 0.7, np.nan, random.normal(level, 1, count)),
    "infinite": lambda random, count, level: random.choice([np.inf, -np.inf, level, 0.0], count),
    "huge": lambda random, count, level: random.choice([1e300, -1e300, 1e38, 1e19, -1e16, level], count),
    "large": lambda random, count, level: 1e15 * random.normal(level, 1, count),
    "tiny": lambda random, count, level: random.choice([1e-44, 1e-300, 1e-20, -1e-38, 0.0], count),
    "mixed": lambda random, count, level: random.choice([1e-30, level, 1e15, np.nan], count),
    "counter": lambda random, count, level: np.cumsum(random.integers(0, 1_000_000, count)).astype(float),
}


@st.composite
def tables(draw: st.DrawFn, *, start: float = 0.0, step: float | None = None) -> pd.DataFrame:
    """Table of 1 to 40 machines, which are there all the time, or for a part of it, each with its own gaps."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    step = draw(st.sampled_from(STEPS)) if step is None else step
    count = draw(st.integers(1, 200))
    uneven, groups = draw(st.booleans()), draw(st.sampled_from([0, 1, 3]))
    kinds = draw(st.lists(st.sampled_from(list(METRICS)), min_size=1, max_size=4))
    mixed = draw(st.booleans())  # whether machines differ in what a metric is like
    parts = []
    for machine in range(draw(st.integers(1, 40))):
        first, last = sorted(random.integers(0, count + 1, 2)) if random.random() < 0.3 else (0, count)
        at = start + step * np.arange(first, last)
        if uneven:
            at = at + random.uniform(0, 3 * step, len(at))
        columns = {
            f"{number} {kind}": METRICS[random.choice(list(METRICS)) if mixed else kind](random, len(at), 10.0)
            for number, kind in enumerate(kinds)
        }
        group = {"group": str(machine % groups)} if groups else {}
        parts.append(pd.DataFrame({"at": at, "worker": f"w{machine}", **group, **columns}))
    return pd.concat(parts, ignore_index=True)


@st.composite
def windows(draw: st.DrawFn) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """A window and, mostly, a history of the same step, of which each may have machines that the other lacks."""
    step = draw(st.sampled_from(STEPS))
    history = draw(st.none() | tables(start=-200 * step, step=step))
    return draw(tables(step=step)), history
