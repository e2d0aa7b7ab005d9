import numpy as np
import pytest
from distributed.protocol.serialize import _nested_deserialize

from dask_efficiency.accounts.tables import Texts
from dask_efficiency.runs.recording.recordings import pack, unpack
from dask_efficiency.runs.trace.recording import Recording
from tests.plugin.watch import travelled


@pytest.mark.parametrize("travel", [_nested_deserialize, travelled])
def test_a_recording_arrives_as_it_was_sent_within_a_process_and_between_two(travel):
    sent = Recording(
        {"log.at": np.arange(5), "series.cpu": np.array([0.5, np.nan])}, Texts.of(["a", "bc", ""]), {"x": 1}
    )
    received = unpack(travel(pack(sent)))
    assert received.columns.keys() == sent.columns.keys()
    for name, column in sent.columns.items():
        np.testing.assert_array_equal(received.columns[name], column)
    assert list(received.keys) == ["a", "bc", ""]
    assert received.facts == {"x": 1}
