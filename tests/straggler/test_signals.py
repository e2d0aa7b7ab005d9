"""One table of signals, which everything else is made from."""

from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.straggler.observations import Readings, compare_by
from dask_efficiency.straggler.online import FLOOR, MIN_EFFECT
from dask_efficiency.straggler.signals import LIVE, SIGNALS


def test_every_signal_has_words_and_a_floor_above_0() -> None:
    parts = [*SIGNALS.values(), *LIVE.values()]
    assert all(part.words and part.floor > 0 for part in parts)


def test_every_live_signal_has_its_place_in_the_arrays() -> None:
    assert len(FLOOR) == len(MIN_EFFECT) == len(LIVE)
    assert (MIN_EFFECT > 0).all()


def test_readings_of_a_signal_that_is_not_in_the_table_cannot_be_made() -> None:
    none = np.zeros(0)

    def made(signal: str) -> Readings:
        return compare_by(signal, none.astype(np.int64), [], none, none)

    assert made("duration").signal == "duration"
    with pytest.raises(ValueError, match="there is no signal 'mood'; expected one of duration, "):
        made("mood")
