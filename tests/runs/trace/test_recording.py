import struct

import numpy as np
import pytest

from dask_efficiency.runs.trace import recording
from dask_efficiency.runs.trace.recording import Chapter, Growing
from tests.runs.trace.scenes import Scene


def test_rows_are_appended_to_every_column_or_none_is() -> None:
    rows = Growing({"at": np.int64, "kind": np.int8})
    rows.append(1 << 40, 3)
    rows.extend(range(3), iter([7, 8, 9]))
    with pytest.raises(struct.error, match="format requires"):
        rows.extend([3, 4], [1, 1_000])
    assert {name: column.tolist() for name, column in rows.columns.items()} == {
        "at": [1 << 40, 0, 1, 2],
        "kind": [3, 7, 8, 9],
    }
    assert len(rows) == 4
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        rows.append(1)


def test_the_columns_of_a_chapter_are_as_wide_as_those_of_the_trace() -> None:
    chapter = Chapter()
    for growing in (chapter.tasks, *chapter.tables.values()):
        for column in growing.columns.values():
            assert np.array(column).dtype.itemsize == column.itemsize
    assert chapter.log.columns["task"].itemsize == 4
    assert chapter.counts() == {"tasks": 0, "transitions": 0, "runs": 0, "transfers": 0, "series": 0, "profiles": 0}


def test_events_after_a_freeze_are_not_in_the_frozen_recording(monkeypatch):
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
