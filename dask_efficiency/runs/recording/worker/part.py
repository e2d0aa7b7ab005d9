"""Recorder: the part of a worker's meter that records its runs and transfers, while a recording goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.names import RECORD
from dask_efficiency.plugin.parts import WorkerPart
from dask_efficiency.plugin.wings import offered
from dask_efficiency.runs.recording.worker.recorder import Profiles, Requests, WorkerRecorder

if TYPE_CHECKING:
    from dask_efficiency.plugin.worker.meter import WorkerMeter


class Recorder(WorkerPart):
    """Begins and ends recordings of a worker.

    Parameters
    ----------
    meter
        The worker's meter.
    """

    def __init__(self, meter: WorkerMeter) -> None:
        self._meter = meter
        self.recorder: WorkerRecorder | None = None
        self._guard = Guard("the recorder", "")

    @classmethod
    def of(cls, meter: WorkerMeter) -> Self:  # noqa: D102
        return cls(meter)

    def record(self, recording: str | None, profile: Requests | None = None) -> None:
        """Begin a recording, or end the one that goes on; ``profile`` says which tasks are profiled meanwhile."""
        former = self.recorder
        if (former.recording if former is not None else None) == recording:
            if former is not None and former.profiles is not None:
                former.profiles.ask(profile or {})
            return
        self.recorder = None
        if former is not None:
            former.stop()
        if recording is not None:
            address = self._meter.worker.address
            self._guard = Guard(
                "the recorder", f"dask_efficiency switched its recorder on {address} off", lambda: self.record(None)
            )
            self._guard(self._begin, recording, profile or {})
        self._meter.record(self.recorder)

    def _begin(self, recording: str, profile: Requests) -> None:
        meter, made = self._meter, offered("profiles/torch")
        profiles: Profiles | None = None if made is None else made(meter.worker.state.tasks, meter.threads.profile)
        self.recorder = WorkerRecorder(meter.worker, recording, self._guard.fail, profiles)
        if profiles is not None:
            profiles.ask(profile)

    def start(self) -> None:
        """Take part in the recording that goes on where the meter begins."""
        self.record(*self._meter.asked_to_record)

    def stop(self) -> None:
        """End the recording that goes on."""
        self.record(None)

    def heartbeat(self) -> None:
        """Send what is recorded."""
        if self.recorder is not None:
            self._guard(self.recorder.flush)

    def closing(self) -> None:
        """Send all that is recorded."""
        if self.recorder is not None:
            self._guard(self.recorder.flush, closing=True)

    async def answer(self, action: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """``record``, where the window is the recording or nothing; or ``flush``: the number of the last batch."""
        if action == RECORD:
            self.record(asked.get("window") or None, asked.get("profile"))
            return {}
        profiles = None if self.recorder is None else self.recorder.profiles
        if profiles is not None:
            await profiles.catch_up()
        seq = None if self.recorder is None else self._guard(self.recorder.flush, running=True)
        if seq is None:
            return {"recorder_off": self._guard.off or "it does not record"}
        if profiles is not None and profiles.unwritten:
            return {"seq": seq, "unwritten": profiles.unwritten}
        return {"seq": seq}
