"""TaskProfiles: the first tasks of each chosen prefix on a worker, under ``torch.profiler``."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH
from dask_efficiency.gpu.meter import TaskId
from dask_efficiency.gpu.profilers import PROFILERS, NotProfiled
from dask_efficiency.plugin.worker.threads import Around
from dask_efficiency.runs.recording.worker.recorder import Requests
from dask_efficiency.runs.trace.run_trace import TaskProfile
from dask_efficiency.show.log import logger
from dask_efficiency.torch_traces.profiler import TorchProfile

if TYPE_CHECKING:
    from distributed.worker_state_machine import TaskState

#: Seconds between two looks at whether all profiles are written (a guess: only a final collection waits for them).
_LOOK_SECONDS = 0.01


class TaskProfiles:
    """Profiles the first tasks of each requested prefix, in their threads, one at a time.

    Only tasks in a pool's threads can be profiled: no coroutines, no tasks of a process pool, no methods of an actor. A
    task that runs while another profile does, or the user's own profiler, is skipped and does not count. ``surround``
    is called with a function to call around each task, or None once no more are wanted.
    """

    def __init__(self, tasks: Mapping[Any, TaskState], surround: Callable[[Around | None], object]) -> None:
        self._tasks = tasks
        self._surround = surround
        self._lock = threading.Lock()
        self._requests: Requests = {}
        #: Number of tasks profiled, by requester and prefix.
        self._done: Counter[tuple[str, str]] = Counter()
        #: Prefixes of which more profiles are wanted.
        self._chosen: frozenset[str] = frozenset()
        self._closed = False
        self._held = False
        #: Profiles on their way to the thread that writes them, and the number that began and are not written.
        self._ended: SimpleQueue[tuple[TorchProfile, int, int] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._unwritten = 0
        #: Number of tasks that run under a profile.
        self._running = 0
        #: Number that had begun and were not written at the last :meth:`take`.
        self.unwritten = 0
        #: Results for the event loop.
        self._written: list[TaskProfile] = []
        self._not_profiled: Counter[str] = Counter()

    def ask(self, requests: Requests) -> None:
        """Profile the requested number of tasks of each prefix; those already profiled for a requester count."""
        with self._lock:
            self._requests = {who: dict(prefixes) for who, prefixes in requests.items()}
            self._choose()

    def take(self, *, closing: bool = False) -> tuple[list[TaskProfile], dict[str, int]]:
        """Profiles since the last call, and numbers of tasks not profiled by reason, unwritten ones at the end."""
        with self._lock:
            profiles, self._written = self._written, []
            left_out, self._not_profiled = self._not_profiled, Counter()
            self.unwritten = self._unwritten
        if closing and self.unwritten:
            left_out["the worker closed before they were written"] += self.unwritten
        return profiles, dict(left_out)

    async def catch_up(self, seconds: float = 2.0) -> None:
        """Wait until all profiles that ended are written, at most some seconds."""
        for _ in range(round(seconds / _LOOK_SECONDS)):
            if self._unwritten <= self._running:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Profile no more; a profile that runs ends with its task. Safe to call twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._choose()
                self._ended.put(None)

    def _choose(self) -> None:
        """Find the prefixes of which more are wanted; tasks are surrounded while there are any."""
        self._chosen = frozenset(
            prefix
            for who, prefixes in self._requests.items()
            for prefix, wanted in prefixes.items()
            if self._done[who, prefix] < wanted and not self._closed
        )
        self._surround(self.around if self._chosen else None)
        if bool(self._chosen) != self._held:
            self._held = bool(self._chosen)
            (PROFILERS.hold if self._held else PROFILERS.release)()

    # -- in the tasks' threads -----------------------------------------------------------------

    def around(self, task: TaskId, key: Any) -> Callable[[], object] | None:
        """Begin a profile if the task has a chosen prefix, and return what ends it. Never raises."""
        try:
            ts = self._tasks.get(key)
            if ts is None or ts.prefix not in self._chosen:
                return None
            return self._begin(ts)
        except Exception as error:
            self._fail(error)
            return None

    def _begin(self, ts: TaskState) -> Callable[[], object] | None:
        run = ts.run_id
        try:
            profile = TorchProfile()
        except NotProfiled as why:
            self._leave_out(str(why))
            return None
        thread = threading.get_native_id()
        with self._lock:
            for who, prefixes in self._requests.items():
                if ts.prefix in prefixes:
                    self._done[who, ts.prefix] += 1
            self._running += 1
            self._unwritten += 1
            if not self._closed:  # else the profiles of another recording may surround the tasks by now
                self._choose()

        def end() -> None:
            ended = False
            try:
                profile.stop()
                if ts.state == "long-running":
                    self._leave_out("the task seceded")
                    return
                with self._lock:
                    if self._closed:
                        return
                    if self._thread is None:
                        name = "dask-efficiency-profiles"
                        self._thread = threading.Thread(target=self._writing, name=name, daemon=True)
                        self._thread.start()
                    self._ended.put((profile, run, thread))
                    ended = True
            except Exception as error:
                self._fail(error)
            finally:
                with self._lock:
                    self._running -= 1
                    self._unwritten -= not ended

        return end

    def _leave_out(self, why: str) -> None:
        with self._lock:
            self._not_profiled[fitting(why, MAX_PREFIX_LENGTH)] += 1

    def _fail(self, error: Exception) -> None:
        """Log once and stop profiling; the task goes on."""
        if not self._closed:
            logger.error("dask_efficiency profiles no task of this worker any more", exc_info=error)
            self._leave_out(f"profiling failed: {type(error).__name__}: {error}")
        self.close()

    # -- in a thread of its own, because writing Kineto's JSON takes a while --------------------

    def _writing(self) -> None:
        while (ended := self._ended.get()) is not None:
            profile, run, thread = ended
            written = []
            try:
                content = profile.export()
                assert profile.stopped is not None
                written = [TaskProfile(run, thread, profile.start, profile.stopped, profile.started, content)]
            except NotProfiled as why:
                self._leave_out(str(why))
            except Exception as error:
                self._fail(error)
            with self._lock:
                self._written += written
                self._unwritten -= 1
