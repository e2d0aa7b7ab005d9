from __future__ import annotations

from array import array

import numpy as np

from dask_efficiency.runs.trace import recording
from tests.runs.trace.scenes import Scene


def test_what_comes_after_it_was_frozen_is_no_part_of_it_though_it_is_packed_later(monkeypatch):
    monkeypatch.setattr(recording, "_PIECE", 3)
    scene = Scene()
    scene.facts["old"] = ("old", "", (0, 0, 1), ("oldest",), {})
    stimulus = scene.submit({"a": ("old",), "b": ("a",)})
    for key in "ab":
        stimulus = scene.run(key, 0, stimulus)
    before, frozen = scene.recorder.freeze().pack(), scene.recorder.freeze()
    stimulus = scene.submit({"c": ("a",), "b": ()})
    scene.move("old", "memory", "released", stimulus)
    scene.recorder.released(scene.tick(), "client", ["a"])
    scene.run("c", 1, stimulus)
    after = frozen.pack()
    assert after.keys == before.keys
    assert after.facts == before.facts
    assert after.columns.keys() == before.columns.keys()
    for name, column in before.columns.items():
        np.testing.assert_array_equal(after.columns[name], column, name)
    assert len(scene.recorder.freeze().pack().columns["log.at"]) > len(before.columns["log.at"])


def test_a_column_is_copied_in_pieces_whatever_its_length(monkeypatch):
    monkeypatch.setattr(recording, "_PIECE", 3)
    for length in range(10):
        column = array("h", range(length))
        for rows in range(length + 1):
            assert recording._first(column, rows).tolist() == list(range(rows))
