"""Recordings of a watch, and their replay."""

from __future__ import annotations

from pathlib import Path

from benchmarks.heartbeat_recordings import Recording, read_recording, recorded, replayed
from tests.straggler.simulated import SimulatedCluster, SimulatedWorker, healthy, slow


def test_a_replay_of_a_recording_names_whom_the_watch_named(tmp_path: Path) -> None:
    recording = Recording("slow", "simulated", "w4", round(30e9))
    with recorded(recording):
        cluster = SimulatedCluster([*healthy(4), SimulatedWorker("w4", slowness=slow(2.0, since=30.0))]).run(90.0)
    recording.save(tmp_path / "one.json.gz")
    outcome = replayed(read_recording(tmp_path / "one.json.gz"))
    assert set(outcome.found) == {finding.worker for finding in cluster.found} == {"w4"}
    assert outcome.seconds is not None
    assert 0 < outcome.seconds < 60
