"""RecordingPart: runs the cluster's recorder, and the workers', while the option or a window wants a trace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Self

from dask_efficiency.accounts.checks import RefusedPayload, counts, text, whole
from dask_efficiency.plugin import names
from dask_efficiency.plugin.guard import MAX_REASON, decoration
from dask_efficiency.plugin.parts import SchedulerPart
from dask_efficiency.plugin.scheduler.workers import WorkerHalves
from dask_efficiency.runs.recording.scheduler.recorder import ClusterRecorder

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

    from dask_efficiency.accounts.processors import Processors

#: Name under which the plugin's option asks for profiles; windows have other names.
OF_THE_PLUGIN = ""
#: Readings of the workers' clocks when a recording begins and when it is collected; the quickest of the three counts.
CLOCK_OBSERVATIONS = 3
#: Seconds between two checks for the last batches: the latency of a local message and more.
_LOOK_SECONDS = 0.005
#: Upstream's own event of a worker that pauses, goes on, or retires; its topic is the worker's address.
_STATUS_CHANGE = "worker-status-change"


class RecordingPart(SchedulerPart):
    """Records while the option asks for it, or a window is open that wants a trace."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self._scheduler: Scheduler = meter.scheduler
        self._workers: WorkerHalves = meter.workers
        self._always = False
        #: Windows that want a trace, with the reasons why each cannot have one.
        self._windows: dict[str, list[str]] = {}
        #: By window and prefix: number of tasks to profile on each worker.
        self._profile: dict[str, dict[str, int]] = {}
        #: Beginning and ending both wait for the workers, so they take turns.
        self._turn = asyncio.Lock()
        self.recorder: ClusterRecorder | None = None

    @classmethod
    def of(cls, meter: Any) -> Self:  # noqa: D102
        return cls(meter)

    def hook(self, metered: Callable[..., None]) -> Callable[..., None]:
        """Make the hook that the scheduler calls for every transition of every task: it calls the meter's own, too."""
        recorder = self.recorder
        if recorder is None or recorder.off is not None:
            return metered
        return recorder.hook(metered, self._meter.accounts.work)

    async def answer(self, action: str, asked: Mapping[str, Any]) -> dict[str, Any]:  # noqa: D102
        if action == names.TRACE:
            return await self._collect()
        await self._profile_more(asked["window"], asked["prefixes"])
        return {}

    async def configured(self) -> None:
        """Record always, or only for windows."""
        self._always = self._meter.options.trace
        if self.recorder is not None:
            self.recorder.limit(self._meter.options.trace_max_tasks)
        await self._adjust()

    async def window_opens(self, window: str, wanted: Mapping[str, Any]) -> None:
        """Record for a window that wants a trace."""
        if wanted.get("trace"):
            self._windows[window] = []
            with decoration("trace", self._windows[window]):
                await self._adjust()

    async def window_closes(self, window: str, opened: int, reply: dict[str, Any], notes: list[str]) -> None:
        """Send the recording, or the reasons why there is none."""
        missing = self._windows.get(window)
        if missing:
            notes += missing
        elif missing is not None:
            with decoration("trace", notes):
                reply["trace"] = {**await self._collect(), "start": opened}

    async def _profile_more(self, window: str, prefixes: Mapping[str, int]) -> None:
        if window not in self._windows:
            raise RuntimeError("there is nothing to keep profiles with: use efficiency_report(trace=True)")
        asked = self._profile.get(window, {})
        more = asked | {prefix: asked.get(prefix, 0) + count for prefix, count in prefixes.items()}
        self._profile[window] = counts("the prefixes of all questions", more)
        await self._adjust()

    def window_forgotten(self, window: str) -> None:
        """Stop recording for this window."""
        if self._windows.pop(window, None) is not None:
            self._profile.pop(window, None)
            self._scheduler._ongoing_background_tasks.call_soon(self._adjust)

    def stop(self) -> None:
        """Stop recording on the scheduler; :meth:`_adjust` stops the workers."""
        if self.recorder is not None:
            self.recorder.stop()
            self.recorder = None
            self._workers.recording = None
            self._meter.rebind()

    meter_failed = stop

    def worker_joined(self, address: str, ws: WorkerState) -> None:
        """Note a worker that joined; its clock is read as soon as it answers."""
        if self.recorder is not None:
            self.recorder.worker_joined(address)
            self._scheduler._ongoing_background_tasks.call_soon(self._read_clock, address)

    def worker_left(self, address: str, stimulus_id: str | None) -> None:
        """Note a worker that was removed."""
        if self.recorder is not None:
            self.recorder.worker_left(address, stimulus_id)

    def graph_taken_in(self, client: str, tasks: Sequence[Any], wanted: Any, stimulus_id: str) -> None:
        """Note a graph that was taken in."""
        if self.recorder is not None:
            self.recorder.graph_taken_in(client, tasks, wanted, stimulus_id)

    def event(self, topic: str, message: Any) -> None:
        """Take a worker's batch, which Dask's log of events must not keep even if it is late; or a change of status."""
        if topic == names.BATCHES:
            self._scheduler._broker.truncate(topic)
            if self.recorder is not None:
                self.recorder.take_batch(message)
        elif self.recorder is not None and isinstance(message, Mapping) and message.get("action") == _STATUS_CHANGE:
            self.recorder.status_changed(topic, message.get("status"))

    def round_over(self, unread: Container[str]) -> None:
        """Note the workers' heartbeats, but for those whose last one is unread."""
        if self.recorder is not None:
            cluster = self._meter.accounts.cluster
            self.recorder.take_heartbeats(cluster.part_by_worker("activity"), cluster.gpu_readings, unread)

    async def _adjust(self) -> None:
        async with self._turn:
            wanted = (self._always or bool(self._windows)) and not self._workers.removed
            tell = False
            if self.recorder is not None and (not wanted or self.recorder.off is not None):
                self.stop()
                tell = not wanted
            asked = {OF_THE_PLUGIN: self._meter.options.profile, **self._profile}
            profile = {who: dict(prefixes) for who, prefixes in asked.items() if prefixes}
            if self._workers.profile != profile:
                self._workers.profile = profile
                tell = tell or (wanted and self.recorder is not None)
            begins = wanted and self.recorder is None
            if begins:
                max_tasks = self._meter.options.trace_max_tasks
                self.recorder = ClusterRecorder(
                    self._scheduler, self._meter.rebind, max_tasks=max_tasks, processors=self._processors
                )
                self._workers.recording = self.recorder.id
                self._meter.rebind()
            if (tell or begins) and not self._workers.removed:
                self._workers.update()
                await self._workers.ask(names.RECORD, self._workers.recording or "")
            if begins:
                await self._read_clocks()

    def _processors(self) -> dict[str, Processors]:
        processors: dict[str, Processors] = self._meter.accounts.cluster.processors
        return processors

    async def _read_clocks(self) -> None:
        for _ in range(CLOCK_OBSERVATIONS):
            if self.recorder is None:
                return
            await asyncio.gather(*map(self._read_clock, list(self._scheduler.workers)))

    async def _read_clock(self, address: str) -> None:
        sent = monotonic_ns()
        answer, came = (await self._workers.ask(names.CLOCK, addresses=[address]))[address]
        if self.recorder is not None and isinstance(answer, dict) and "at" in answer:
            self.recorder.read_clock(address, sent, answer, came)

    async def _collect(self) -> dict[str, Any]:
        """Pack the recording until now for a client; RuntimeError if the cluster does not record."""
        recorder = self.recorder
        if recorder is None:
            raise RuntimeError(
                "the cluster does not record: use EfficiencyPlugin(trace=True) or efficiency_report(trace=True)"
            )
        notes = await self._flush(recorder)
        await self._read_clocks()
        return await asyncio.to_thread(recorder.freeze(notes))

    async def _flush(self, recorder: ClusterRecorder) -> list[str]:
        """Have the workers send their rows, and wait for these; returns notes on missing ones."""
        missing: dict[str, str] = {}
        awaited: dict[str, int] = {}
        for address, (answer, _) in (await self._workers.ask(names.FLUSH)).items():
            known = answer if isinstance(answer, dict) else {}
            try:
                if "seq" in known:
                    seq, unwritten = whole("seq", known["seq"]), whole("unwritten", known.get("unwritten", 0))
                    awaited[address] = seq
                    if unwritten:
                        missing[address] = f"{unwritten} of its profiles had not been written yet"
                else:
                    otherwise = str(answer) if isinstance(answer, Exception) else "it is not metered"
                    missing[address] = text("recorder_off", known.get("recorder_off", otherwise[:MAX_REASON]))
            except RefusedPayload as refusal:
                missing[address] = f"its answer was refused: {refusal}"
        until = monotonic_ns() + round(self._meter.options.report_timeout * 1e9)
        # Batches travel on another connection than the answers. A recorder that failed does not take them.
        while recorder.off is None and monotonic_ns() < until:
            present = {address: seq for address, seq in awaited.items() if address in self._scheduler.workers}
            awaited = {address: seq for address, seq in present.items() if recorder.heard.get(address, 0) < seq}
            if not awaited:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        if recorder.off is None:
            missing.update(dict.fromkeys(awaited, "its last rows did not come in time"))
        return [f"worker {address} is recorded in part: {reason}" for address, reason in missing.items()]
