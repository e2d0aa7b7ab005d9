"""Profiles on their way from a worker into a trace, and into files."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.simulated_traces import tree
from dask_efficiency import load_trace
from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace import files, recorder
from dask_efficiency.runs.trace.batch import decode, encode
from dask_efficiency.runs.trace.build import build, since_start
from dask_efficiency.runs.trace.files import TraceFileError, check_positions, save_trace
from dask_efficiency.runs.trace.recorder import TaskFacts, TraceRecorder
from dask_efficiency.runs.trace.run_trace import MAX_PROFILE_BYTES, TaskProfile
from tests.runs.trace.equal import assert_same
from tests.runs.trace.test_files import everything

PROFILE = TaskProfile(run=7, thread=123, start=10, stop=20, started=1_000_010, content=b"\x1f\x8b...")


def message(**kwargs: Any) -> dict[str, Any]:
    return encode(recording="r", worker="w", seq=1, wall=5, runs=[], **kwargs)


def test_profiles_travel_in_a_batch_as_they_are() -> None:
    batch = decode(message(profiles=[PROFILE], not_profiled={"busy": 2}))
    assert batch.profiles == (PROFILE,)
    assert batch.not_profiled == {"busy": 2}


def test_a_batch_without_them_is_what_it_always_was() -> None:
    assert not message().keys() & {"profiles", "not_profiled"}
    assert decode(message()).profiles == ()
    assert decode(message()).not_profiled == {}


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
def test_what_is_no_profile_is_refused(profiles: Any, found: str) -> None:
    with pytest.raises(RefusedPayload, match=found):
        decode(message() | {"profiles": profiles})


# -- in the recorder and in a trace ------------------------------------------------------------


def read(keys: Any) -> TaskFacts:
    count = len(keys)
    return TaskFacts(["f"] * count, [""] * count, [(0, 0, 0)] * count, [()] * count, {})


def recorded(*profiles: TaskProfile) -> TraceRecorder:
    """Three tasks, whose runs are 5, 6 and 7; the worker's clock is 1,000 behind."""
    found = TraceRecorder(read, max_tasks=100)
    found.graph(["a", "b", "c"], [], client="client", stimulus_id="update-graph-1", received=1, at=2)
    for run, key in ((5, "a"), (6, "b"), (7, "c")):
        found.transition(run, key, "waiting", "processing", "update-graph-1", 0, run)
    found.batch(0, [], decode(message(profiles=list(profiles), not_profiled={"busy": 1})))
    return found


def traced(found: TraceRecorder, **kwargs: Any) -> Any:
    frozen = found.freeze()
    worker = {"name": "w", "address": "w", "host": "h", "nthreads": 1, "memory_limit": 0, "resources": {}}
    frozen.facts.update(
        epoch=1_000_000,
        started=0,
        stopped=100,
        workers=[{**worker, "offset": 1_000, "error": 5, "wall": 0}],
        config={},
        versions={},
        notes=[],
    )
    return build(frozen.pack(), name="run", **kwargs)


def test_a_profile_is_of_a_run_in_the_trace_by_the_scheduler_s_clock() -> None:
    first = replace(PROFILE, run=6, start=4, content=b"another")
    trace = traced(recorded(PROFILE, first, replace(PROFILE, run=99)))
    assert [(profile.run, profile.start, profile.stop) for profile in trace.profiles] == [
        (1, 1_001_004, 1_001_020),
        (2, 1_001_010, 1_001_020),
    ]
    assert [profile.content for profile in trace.profiles] == [b"another", PROFILE.content]
    assert [trace.keys[int(trace.runs.task[profile.run])] for profile in trace.profiles] == ["b", "c"]
    assert {profile.started for profile in trace.profiles} == {PROFILE.started}
    check_positions(trace)


def test_profiles_of_runs_that_were_lost_are_counted() -> None:
    trace = traced(recorded(PROFILE, replace(PROFILE, run=98), replace(PROFILE, run=99)))
    assert len(trace.profiles) == 1
    assert trace.dropped == {"profiles": 2}


def test_a_trace_notes_the_runs_that_were_not_profiled() -> None:
    assert traced(recorded()).notes == ("not profiled, though asked for: 1 runs, as busy",)
    assert traced(recorded()).profiles == ()


def test_a_trace_says_that_profiles_cost_time() -> None:
    (one, _) = traced(recorded(PROFILE)).notes
    assert one.startswith("1 run of a task took longer, as torch.profiler was asked for")
    (two, _) = traced(recorded(PROFILE, replace(PROFILE, run=6))).notes
    assert two.startswith("2 runs of tasks took longer")


def test_profiles_beyond_a_limit_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_ALL_PROFILES_BYTES", 2 * len(PROFILE.content))
    found = recorded(PROFILE)
    found.batch(0, [], decode(message(profiles=[replace(PROFILE, run=6)])))
    found.batch(0, [], decode(message(profiles=[replace(PROFILE, run=5)])))
    trace = traced(found)
    assert {profile.run for profile in trace.profiles} == {1, 2}
    assert trace.dropped == {"profiles": 1}


def test_a_part_of_a_trace_has_the_profiles_of_its_runs() -> None:
    trace = tree(8)
    last = int(np.argmax(trace.runs.reported))
    both = (replace(PROFILE, run=0), replace(PROFILE, run=last))
    part = since_start(replace(trace, start=int(trace.runs.reported[last]), profiles=both))
    assert len(part.runs) < len(trace.runs)
    assert [int(part.runs.run_id[profile.run]) for profile in part.profiles] == [int(trace.runs.run_id[last])]


@pytest.mark.parametrize("run", [MISSING, 10_000])
def test_a_profile_of_no_run_is_refused(run: int) -> None:
    with pytest.raises(ValueError, match=f"a profile is of run {run}; expected 0 to"):
        check_positions(replace(tree(2), profiles=(replace(PROFILE, run=run),)))


# -- in files ------------------------------------------------------------------------------------


def test_profiles_are_loaded_as_they_were_saved(tmp_path: Path) -> None:
    profiles = (PROFILE, replace(PROFILE, run=0, content=bytes(range(256)) * 40))
    trace = replace(everything(), profiles=profiles)
    trace.save(tmp_path / "a.trace")
    assert_same(load_trace(tmp_path / "a.trace"), trace)


def damaged(source: Path, target: Path, *, without: str = "", **described: Any) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "trace.json":
                content = json.dumps(json.loads(content) | described).encode()
            if name != without:
                new.writestr(name, content)
    return target


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ({"without": "profiles/0.json.gz"}, "lacks 'profiles/0.json.gz'"),
        ({"profiles": None}, "'profiles' is None; expected list"),
        ({"profiles": [3]}, "'profiles' holds 3; expected dict"),
        ({"profiles": [{"run": 0}]}, "'profiles/0.json.gz.thread' is None; expected int"),
        (
            {"profiles": [{"run": 10**6, "thread": 1, "start": 1, "stop": 1, "started": 1}]},
            "do not fit: a profile is of run 1000000",
        ),
        (
            {"profiles": [{"run": -1, "thread": 1, "start": 1, "stop": 1, "started": 1}]},
            "'profiles/0.json.gz.run' is -1; expected 0 to",
        ),
        (
            {"profiles": [{"run": 0, "thread": 1, "start": 1, "stop": 1, "started": 10**30}]},
            "'profiles/0.json.gz.started' is 1000000000000000000000000000000; expected 0 to",
        ),
        (
            {"profiles": [{"run": 0, "thread": 1, "start": 2, "stop": 1, "started": 1}]},
            "'profiles/0.json.gz' stops at 1; expected at least 2, where it starts",
        ),
    ],
)
def test_damage_to_profiles_is_found(tmp_path: Path, damage: dict[str, Any], found: str) -> None:
    save_trace(replace(tree(2), profiles=(replace(PROFILE, run=0),)), tmp_path / "good.trace")
    bad = damaged(tmp_path / "good.trace", tmp_path / "bad.trace", **damage)
    with pytest.raises(TraceFileError, match=found):
        load_trace(bad)


def test_no_more_profiles_are_read_than_a_recording_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_trace(replace(tree(2), profiles=(replace(PROFILE, run=0),) * 3), tmp_path / "a.trace")
    size = len(PROFILE.content)
    monkeypatch.setattr(files, "MAX_ALL_PROFILES_BYTES", 3 * size)
    assert len(load_trace(tmp_path / "a.trace").profiles) == 3
    monkeypatch.setattr(files, "MAX_ALL_PROFILES_BYTES", 3 * size - 1)
    with pytest.raises(TraceFileError, match=f"'profiles/2.json.gz' has {size} bytes; expected at most {size - 1}"):
        load_trace(tmp_path / "a.trace")


def test_a_profile_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_trace(replace(tree(2), profiles=(replace(PROFILE, run=0),)), tmp_path / "a.trace")
    monkeypatch.setattr(files, "MAX_PROFILE_BYTES", 3)
    with pytest.raises(TraceFileError, match=f"has {len(PROFILE.content)} bytes; expected at most 3"):
        load_trace(tmp_path / "a.trace")
