from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.runs.recording.scheduler.recording import RecordingPart


@pytest.mark.parametrize("odd", [{"seq": "7"}, {"seq": [1]}, {"seq": 1, "unwritten": "x"}, {"recorder_off": ["why"]}])
def test_a_recording_has_the_rows_of_other_workers_beside_an_odd_answer(odd: dict[str, Any]) -> None:
    answers = {"tcp://a": (odd, 0), "tcp://b": ({"seq": 2, "unwritten": 1}, 0), "tcp://c": (OSError("it vanished"), 0)}

    async def ask(action: str) -> dict[str, Any]:
        return answers

    scheduler = SimpleNamespace(workers=dict.fromkeys(answers))
    options = SimpleNamespace(report_timeout=60.0)
    meter: Any = SimpleNamespace(scheduler=scheduler, workers=SimpleNamespace(ask=ask), options=options)
    recorder: Any = SimpleNamespace(off=None, heard={"tcp://b": 2})
    notes = asyncio.run(RecordingPart(meter)._flush(recorder))
    first, *others = sorted(notes)
    assert first.startswith("worker tcp://a is recorded in part: its answer was refused: ")
    assert others == [
        "worker tcp://b is recorded in part: 1 of its profiles had not been written yet",
        "worker tcp://c is recorded in part: it vanished",
    ]
