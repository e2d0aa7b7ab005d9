"""Profiles on their way from a worker into a trace, and into files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dask_efficiency import RunTrace, load_trace
from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace import files, recorder
from dask_efficiency.runs.trace.batch import decode, encode
from dask_efficiency.runs.trace.build import since_start
from dask_efficiency.runs.trace.files import TraceFileError, check_positions, save_trace
from dask_efficiency.runs.trace.run_trace import MAX_PROFILE_BYTES, TaskProfile
from tests.runs.trace.archives import forged, set_to
from tests.runs.trace.equal import assert_same
from tests.runs.trace.scenes import EPOCH, Scene
from tests.runs.trace.test_files import everything
from tests.simulated_traces import tree

PROFILE = TaskProfile(run=7, thread=123, start=10, stop=20, started=1_000_010, content=b"\x1f\x8b...")


def message(**kwargs: Any) -> dict[str, Any]:
    return encode(recording="r", worker="w", seq=1, wall=5, runs=[], **kwargs)


def test_profiles_travel_in_a_batch_as_they_are() -> None:
    batch = decode(message(profiles=[PROFILE], not_profiled={"busy": 2}))
    assert (batch.profiles, batch.not_profiled) == ((PROFILE,), {"busy": 2})
    assert not message().keys() & {"profiles", "not_profiled"}
    assert (decode(message()).profiles, decode(message()).not_profiled) == ((), {})


@pytest.mark.parametrize(
    ("profiles", "found"),
    [
        ("x", "profiles is 'x'"),
        ([3], "a profile is NoneType"),
        ([[]], "a profile is NoneType"),
        ([[1, 2, 3, 4, 5, "text"]], "a profile is str"),
        ([[1, 2, 3, 4, b"x"]], "a row of profiles is .* expected 5 numbers"),
        ([[1, 2, -3, 4, 5, b"x"]], r"profiles is -3"),
        ([[1, 2, 3, 4, 5, bytes(MAX_PROFILE_BYTES + 1)]], f"a profile is {MAX_PROFILE_BYTES + 1}; expected at most"),
    ],
)
def test_anything_but_a_profile_is_refused(profiles: Any, found: str) -> None:
    with pytest.raises(RefusedPayload, match=found):
        decode(message() | {"profiles": profiles})


def recorded(*batches: Sequence[TaskProfile]) -> RunTrace:
    """Three tasks, whose runs are 5, 6 and 7, on a worker whose clock is 1,000 behind; a batch of profiles each."""
    scene = Scene(offsets=(1_000,))
    scene.run_ids = 4
    stimulus = scene.submit({"a": (), "b": (), "c": ()})
    for key in "abc":
        scene.process(key, 0, stimulus)
    for profiles in batches:
        scene.send(0, profiles=list(profiles), not_profiled={})
    scene.send(0, not_profiled={"busy": 1})
    return scene.trace()


def test_profiles_of_runs_in_the_trace_are_on_the_scheduler_s_clock_and_others_are_counted() -> None:
    first = replace(PROFILE, run=6, start=4, content=b"another")
    trace = recorded([PROFILE, first, replace(PROFILE, run=98)], [replace(PROFILE, run=99)])
    assert [(profile.run, profile.start - EPOCH, profile.stop - EPOCH) for profile in trace.profiles] == [
        (1, 1_004, 1_020),
        (2, 1_010, 1_020),
    ]
    assert [profile.content for profile in trace.profiles] == [b"another", PROFILE.content]
    assert [trace.keys[int(trace.runs.task[profile.run])] for profile in trace.profiles] == ["b", "c"]
    assert {profile.started for profile in trace.profiles} == {PROFILE.started}
    assert trace.dropped == {"profiles": 2}
    check_positions(trace)
    for run in (MISSING, 10_000):
        with pytest.raises(ValueError, match=f"a profile is of run {run}; expected 0 to"):
            check_positions(replace(trace, profiles=(replace(PROFILE, run=run),)))
    # A trace notes that profiles cost time, and which are missing.
    assert trace.notes[0].startswith("2 runs of tasks took longer")
    assert recorded([PROFILE]).notes[0].startswith("1 run of a task took longer, as torch.profiler was asked for")
    assert recorded().notes == ("not profiled, though asked for: 1 runs, as busy",)
    assert recorded().profiles == ()


def test_profiles_beyond_a_limit_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_ALL_PROFILES_BYTES", 2 * len(PROFILE.content))
    trace = recorded([PROFILE], [replace(PROFILE, run=6)], [replace(PROFILE, run=5)])
    assert {profile.run for profile in trace.profiles} == {1, 2}
    assert trace.dropped == {"profiles": 1}


def test_a_part_of_a_trace_has_the_profiles_of_its_runs() -> None:
    trace = tree(8)
    last = int(np.argmax(trace.runs.reported))
    both = (replace(PROFILE, run=0), replace(PROFILE, run=last))
    part = since_start(replace(trace, start=int(trace.runs.reported[last]), profiles=both))
    assert len(part.runs) < len(trace.runs)
    assert [int(part.runs.run_id[profile.run]) for profile in part.profiles] == [int(trace.runs.run_id[last])]


def described(**changes: int) -> dict[str, int]:
    return {"run": 0, "thread": 1, "start": 1, "stop": 1, "started": 1} | changes


@pytest.mark.parametrize(
    ("profiles", "found"),
    [
        (None, "'profiles' is None; expected list"),
        ([3], "'profiles' holds 3; expected dict"),
        ([{"run": 0}], "'profiles/0.json.gz.thread' is None; expected int"),
        ([described(run=10**6)], "do not fit: a profile is of run 1000000"),
        ([described(run=-1)], "'profiles/0.json.gz.run' is -1; expected 0 to"),
        ([described(started=10**30)], f"'profiles/0.json.gz.started' is {10**30}; expected 0 to"),
        ([described(start=2)], "'profiles/0.json.gz' stops at 1; expected at least 2, where it starts"),
        ([described()] * 2, "lacks 'profiles/1.json.gz'"),
    ],
)
def test_damage_to_profiles_is_found(tmp_path: Path, profiles: Any, found: str) -> None:
    save_trace(replace(tree(2), profiles=(replace(PROFILE, run=0),)), tmp_path / "good.trace")
    damaged = forged((tmp_path / "good.trace").read_bytes(), "trace.json", set_to("profiles", to=profiles))
    (tmp_path / "bad.trace").write_bytes(damaged)
    with pytest.raises(TraceFileError, match=found):
        load_trace(tmp_path / "bad.trace")


def test_profiles_are_loaded_as_saved_and_no_more_than_a_recording_has(tmp_path, monkeypatch):
    save_trace(replace(tree(2), profiles=(replace(PROFILE, run=0),) * 3), tmp_path / "a.trace")
    profiles = (PROFILE, replace(PROFILE, run=0, content=bytes(range(256)) * 40))
    trace = replace(everything(), profiles=profiles)
    trace.save(tmp_path / "whole.trace")
    assert_same(load_trace(tmp_path / "whole.trace"), trace)
    size = len(PROFILE.content)
    monkeypatch.setattr(files, "MAX_ALL_PROFILES_BYTES", 3 * size)
    assert len(load_trace(tmp_path / "a.trace").profiles) == 3
    monkeypatch.setattr(files, "MAX_ALL_PROFILES_BYTES", 3 * size - 1)
    with pytest.raises(TraceFileError, match=f"'profiles/2.json.gz' has {size} bytes; expected at most {size - 1}"):
        load_trace(tmp_path / "a.trace")
    monkeypatch.setattr(files, "MAX_PROFILE_BYTES", 3)
    with pytest.raises(TraceFileError, match=f"has {size} bytes; expected at most 3"):
        load_trace(tmp_path / "a.trace")
