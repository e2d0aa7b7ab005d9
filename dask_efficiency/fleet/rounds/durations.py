"""Durations as Prometheus writes them: ``15s``, ``1h30m``."""

from __future__ import annotations

import math
import re

_SECONDS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
_PARTS = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[wdhms]))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")


def duration_of(text: str) -> float:
    """Seconds, more than 0.

    Raises
    ------
    ValueError
        That says what was expected.
    """
    if _PARTS.fullmatch(text.strip()):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
        if 0 < seconds < math.inf:
            return seconds
    raise ValueError(f"expected a duration above 0 such as 15s, 8m or 1h30m, got {text[:80]!r}")


def shown_duration(seconds: float) -> str:
    """In the largest unit that leaves a whole number: ``90s``, ``8m``."""
    for unit, factor in _SECONDS.items():
        if unit not in ("w", "ms") and seconds >= factor and seconds % factor == 0:
            return f"{seconds / factor:g}{unit}"
    return f"{seconds:.3g}s"
