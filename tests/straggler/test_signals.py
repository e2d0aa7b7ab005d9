from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.straggler import signals
from dask_efficiency.straggler.observations import compare_by
from dask_efficiency.straggler.signals import FINISHED, LIVE


def test_every_signal_has_words_a_floor_and_an_effect_above_0_and_a_row_that_is_named_like_it() -> None:
    assert all(signal.words and signal.floor > 0 for signal in (*FINISHED.values(), *LIVE.values()))
    assert all(signal.min_residual > 0 for signal in LIVE.values())
    assert [getattr(signals, name.upper()) for name in LIVE] == list(range(len(LIVE)))


def test_observations_of_a_signal_that_is_not_in_the_table_cannot_be_made() -> None:
    none = np.zeros(0)
    with pytest.raises(ValueError, match="there is no signal 'mood'; expected one of duration, "):
        compare_by("mood", none.astype(np.int64), [], none, none)
