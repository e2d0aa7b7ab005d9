"""One table of signals, which everything else is made from."""

from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.straggler import signals
from dask_efficiency.straggler.observations import Observations, compare_by
from dask_efficiency.straggler.signals import FINISHED, LIVE, SIGNALS


def test_every_signal_has_words_and_a_floor_above_0() -> None:
    parts = [*FINISHED.values(), *LIVE.values()]
    assert all(part.words and part.floor > 0 for part in parts)
    assert all(signal.words for signal in SIGNALS.values())


def test_every_live_signal_has_an_effect_that_counts_and_a_row_that_is_named_like_it() -> None:
    assert all(signal.min_residual > 0 for signal in LIVE.values())
    assert [getattr(signals, name.upper()) for name in LIVE] == list(range(len(LIVE)))


def test_observations_of_a_signal_that_is_not_in_the_table_cannot_be_made() -> None:
    none = np.zeros(0)

    def made(signal: str) -> Observations:
        return compare_by(signal, none.astype(np.int64), [], none, none)

    assert made("duration").signal == "duration"
    with pytest.raises(ValueError, match="there is no signal 'mood'; expected one of duration, "):
        made("mood")
