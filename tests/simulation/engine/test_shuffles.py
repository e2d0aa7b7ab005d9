from dataclasses import replace

import numpy as np

from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import Texts
from dask_efficiency.runs.trace.schema import Shuffled
from dask_efficiency.simulation.engine.shuffles import shuffles
from tests.simulated_traces import MS, Graph, simulate


def shuffle() -> RunTrace:
    """Two inputs of 30 and 10 bytes, under two kinds of prefixes; the last of three outputs is partition 1."""
    prefixes = ["load", "load", "shuffle-transfer", "rechunk-merge", "shuffle-barrier", "out", "out", "out"]
    inputs = [[], [], [0], [1], [2, 3], [4], [4], [4]]
    graph = Graph(prefixes, inputs, [10 * MS] * 8, [30, 10, 1, 1, 1, 5, 5, 5], {5, 6, 7})
    keys = [f"('{prefix}', {number})" for prefix, number in zip(prefixes, [0, 1, 2, 3, 4, 10, 2, 1], strict=True)]
    return replace(simulate(graph, workers=2, nthreads=1), keys=Texts.of(keys))


def test_the_inputs_of_a_barriers_dependencies_are_those_of_the_shuffle() -> None:
    (found,) = shuffles(shuffle())
    assert (found.barrier, found.inputs, found.outputs) == (4, {2: 30, 3: 10}, (7, 6, 5))


def test_inputs_are_as_large_as_the_recorded_messages() -> None:
    rows = {"task": [4, 4, 2], "sender": [0, 1, 0], "receiver": [1, 1, 0], "nbytes": [12, 8, 99]}
    messages = Shuffled.from_columns({name: np.array(row) for name, row in rows.items()})
    (found,) = shuffles(replace(shuffle(), shuffled=messages))
    assert found.inputs == {2: 15, 3: 5}
