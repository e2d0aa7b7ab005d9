"""RecorderPart: the part of a worker's meter that records its runs and transfers, while a recording goes on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from dask_efficiency.accounts.checks import counts, mapping, text
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.names import RECORD
from dask_efficiency.plugin.parts import WorkerPart
from dask_efficiency.plugin.wings import offered
from dask_efficiency.runs.recording.worker.recorder import Requests, WorkerRecorder

if TYPE_CHECKING:
    from dask_efficiency.plugin.worker.meter import WorkerMeter


class RecorderPart(WorkerPart):
    """Begins and ends the recording of a worker; joins the one that goes on when the meter begins."""

    def __init__(self, meter: WorkerMeter) -> None:
        self._worker, self._threads, self._hooks, self._spills = meter.worker, meter.threads, meter.hooks, meter.spills
        self._asked = meter.asked_to_record
        self.recorder: WorkerRecorder | None = None
        self._guard = Guard("the recorder", "")

    @classmethod
    def of(cls, meter: WorkerMeter) -> Self:  # noqa: D102
        return cls(meter)

    def record(self, recording: str | None, profile: Requests | None = None) -> None:
        """Begin a recording, or end the current one; ``profile`` are the tasks to profile meanwhile."""
        former = self.recorder
        if (former.recording if former is not None else None) == recording:
            if former is not None and former.profiles is not None:
                former.profiles.ask(profile or {})
            return
        self.recorder = None
        if former is not None:
            former.stop()
        if recording is not None:
            self._guard = Guard("the recorder", f"dask_efficiency switched its recorder on {self._worker.address} off")
            self._guard(self._begin, recording, profile or {})
        self._hooks.record(self.recorder)
        self._spills.on_stretch = None if self.recorder is None else self.recorder.at_disk
        self._threads.recording = self.recorder is not None

    def _begin(self, recording: str, profile: Requests) -> None:
        made = offered("profiles/torch")
        surround = partial(self._threads.surround, "profiles")
        profiles = None if made is None else made(self._worker.state.tasks, surround)
        self.recorder = WorkerRecorder(self._worker, recording, profiles)
        if profiles is not None:
            profiles.ask(profile)

    def start(self) -> None:
        """Join the recording that goes on when the meter begins."""
        self.record(*self._asked)

    def stop(self) -> None:
        """End the current recording."""
        self.record(None)

    def _flush(self, **known: bool) -> int | None:
        """Send the rows; returns the number of the last batch, None if nothing is recorded or the recorder failed."""
        recorder = self.recorder
        if recorder is None:
            return None
        self._hooks.catch_up()
        if recorder.failure is not None:
            self._guard.fail(recorder.failure)
        seq: int | None = self._guard(recorder.flush, **known)
        if self._guard.off is not None:
            self.record(None)
        return seq

    def heartbeat(self) -> None:
        """Send the rows."""
        self._flush()

    def closing(self) -> None:
        """Send the last rows."""
        self._flush(closing=True)

    async def answer(self, action: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``record``, whose window is the recording's id or empty; or ``flush``: number of the last batch.

        Raises RefusedPayload, before anything changes, if the question is malformed.
        """
        if action == RECORD:
            profile = mapping("profile", asked.get("profile") or {})
            requests = {text("profile", who): counts("profile", prefixes) for who, prefixes in profile.items()}
            self.record(text("window", asked.get("window", "")) or None, requests)
            return {}
        profiles = None if self.recorder is None else self.recorder.profiles
        if profiles is not None:
            await profiles.catch_up()
        seq = self._flush(running=True)
        if seq is None:
            return {"recorder_off": self._guard.off or "it does not record"}
        unwritten = 0 if profiles is None else profiles.unwritten
        return {"seq": seq, "unwritten": unwritten} if unwritten else {"seq": seq}
