"""What time was spent on: along a window, and as a table of seconds by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np

from dask_efficiency.accounts.tables import Int8, Int64
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.runs.sections.path_kinds import MEANINGS, colour_of
from dask_efficiency.show.document import Along, Label, Share, Table
from dask_efficiency.show.figures import apportion, format_percent, format_seconds, time_scale

#: Rows of a table by name; the rest is summed up.
TOP_NAMES = 8

#: Steps of the picture along the run: a kind that fills most of a step has it.
STEPS = 400


def kind_label(name: str, meanings: Mapping[Kind, str] = MEANINGS) -> Label:
    """A kind's name, colour and meaning; of any other text, the text."""
    return Label(name, colour_of(name), meanings[Kind(name)]) if name in set(Kind) else Label(name)


def along(
    kinds: Int8, starts: Int64, stops: Int64, window: tuple[int, int], meanings: Mapping[Kind, str] = MEANINGS
) -> Along:
    """The kind that fills most of each step of a window, equal neighbours as one.

    Parameters
    ----------
    kinds, starts, stops
        Stretches in time order, each a position in :data:`~dask_efficiency.runs.path.kinds.KINDS`.
    """
    start, length = window[0], window[1] - window[0]
    # beside its own time, a stretch takes part in the step that it begins in
    filled = np.zeros((STEPS, len(KINDS)))
    for kind, since, until in zip(kinds.tolist(), (starts - start).tolist(), (stops - start).tolist(), strict=True):
        first, last = since * STEPS / length, until * STEPS / length
        for step in range(int(first), min(int(np.ceil(last)), STEPS)):
            filled[step, kind] += min(last, step + 1) - max(first, step)
    found = [
        (kind_label(KINDS[position], meanings), min(steps), max(steps) + 1)
        for position, steps in _runs(filled.argmax(axis=1).tolist())
    ]
    return Along(tuple(found), STEPS, format_seconds(length / 1e9))


def _runs(values: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Equal neighbours: the value, and where it stands."""
    return [(value, [i for i, _ in run]) for value, run in groupby(enumerate(values), key=lambda item: item[1])]


def seconds_table(name: str, seconds: Mapping[str, float], labels: Mapping[str, Label]) -> Table:
    """Seconds by name, with a bar for each; a label stands for its name."""
    largest = max(seconds.values(), default=0.0)
    scale = time_scale(largest)
    tenths = apportion([round(value * 1e9) for value in seconds.values()], 1000)
    rows = tuple(
        (labels.get(each, each), scale.figure(value), format_percent(share))
        for (each, value), share in zip(seconds.items(), tenths, strict=True)
    )
    bars = tuple(Share(value / largest if largest else 0.0) for value in seconds.values())
    return Table((name, f"time, {scale.unit}", "%"), rows, drawings=bars)


def top(seconds: Mapping[str, float], number: int) -> dict[str, float]:
    """The first of some seconds by name, and the sum of the rest."""
    names = list(seconds)
    first = {name: seconds[name] for name in names[:number]}
    rest = names[number:]
    return first | ({f"{len(rest)} more": sum(seconds[name] for name in rest)} if rest else {})
