"""ThreadLooks: what each thread of a worker's process does now, with its task, cause and stack."""

from __future__ import annotations

import linecache
import platform
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any

from distributed import Worker

from dask_efficiency.accounts.checks import RefusedPayload, flag, text
from dask_efficiency.accounts.intake import fitting, whole_number
from dask_efficiency.accounts.lines import Frame, Stack, is_own
from dask_efficiency.accounts.rows import MAX_NAMED
from dask_efficiency.accounts.thread_looks import AWAITING, COMPUTING, FREE, LOOP, OTHER, TASK, ThreadLook, encode_looks
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.plugin.stacks import Stacks, frames_of_others, from_task, has_gil
from dask_efficiency.plugin.thread_clocks import HeldReader, ThreadFiles
from dask_efficiency.plugin.worker.lock_looks import told
from dask_efficiency.plugin.worker.look import CORE
from dask_efficiency.plugin.worker.native_stacks import native_stacks
from dask_efficiency.plugin.worker.sampler import why_not
from dask_efficiency.plugin.worker.threads import TaskThreads
from dask_efficiency.plugin.worker.wait_states import LOCK, POLLS, RUNNING, SLEEP, WaitStates, find_gil
from dask_efficiency.plugin.worker.watched_threads import MAX_THREADS

#: Seconds of a look: a thread that computes for half of them computes. A guess: several of Python's switch intervals.
LOOK_SECONDS = 0.05
#: Characters of a line of source.
MAX_LINE = 200


class ThreadLooks:
    """Looks at the threads of a worker's process. Made on its event loop; each look in a thread of its own.

    It needs neither the event loop nor a lock that this may hold, so it works while the loop is blocked.
    """

    def __init__(self, worker: Worker, threads: TaskThreads) -> None:
        self._worker, self._threads = worker, threads
        self._loop_ident = threading.get_ident()

    def look(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a question, with fields ``prefix``, ``source`` and ``native``; RefusedPayload if it is odd."""
        if not asked.keys() <= {"prefix", "source", "native"}:
            raise RefusedPayload(f"a question has {sorted(asked)!r:.80}; expected prefix, source and native")
        prefix = text("prefix", asked.get("prefix", ""))
        looks = list(self._looks())
        if prefix:
            looks = [look for look in looks if look.prefix == prefix]
        missing = ""
        if flag("native", asked.get("native", False)) and looks:
            found, missing = native_stacks()
            native_ids = {thread.ident: thread.native_id for thread in threading.enumerate()}
            stacks = [found.get(native_ids.get(look.ident) or -1) for look in looks]
            looks = [
                look if stack is None else look._replace(stack=stack, is_native=True)
                for look, stack in zip(looks, stacks, strict=True)
            ]
        code = _source_of(looks) if flag("source", asked.get("source", False)) else {}
        fetching = list(self._worker.state.in_flight_workers.items())[:MAX_NAMED]
        peers = {fitting(address): len(keys) for address, keys in fetching}
        return {**encode_looks(looks, code), "not_native": missing, "fetching": peers}

    def _looks(self) -> Iterator[ThreadLook]:
        """Looks at all threads, but the caller's, and at tasks that are coroutines."""
        threads = [one for one in threading.enumerate() if one.ident is not None and one.native_id is not None]
        threads = [one for one in threads if one is not threading.current_thread()][:MAX_THREADS]
        with ExitStack() as opened:
            causes = _Causes(threads, opened)
            time.sleep(LOOK_SECONDS)
            at, stacks = time.monotonic_ns(), Stacks()
            keys, live = dict(self._worker.active_threads), dict(self._threads.live)
            # Without a GIL, frames of others change while they are walked.
            frames = frames_of_others() if has_gil() else {}
            for thread in threads:
                ident = thread.ident or 0
                frame = frames.pop(ident, None)
                waits = stacks.waiting(frame)
                stack, cause = stacks.whole(frame), causes.of(ident, waits)
                name, key = fitting(thread.name), keys.get(ident)
                if key is not None:
                    start = live.get(ident, (at,))[0]
                    stack = from_task(stack, waits)
                    yield self._task(key, name, ident, max(0, at - start), cause, stack)
                elif ident == self._loop_ident:
                    yield ThreadLook("", LOOP, name, ident, "", "", 0, cause, False, stack)
                else:
                    is_free = bool(stack) and stack[-1].function == "_worker"
                    yield ThreadLook("", FREE if is_free else OTHER, name, ident, "", "", 0, cause, False, stack)
        running = set(keys.values())
        for ts in list(self._worker.state.executing):
            if ts.key not in running and getattr(ts.run_spec, "is_coro", False):
                ns = whole_number((time.time() - (ts.start_time or time.time())) * 1e9)
                yield self._task(ts.key, "", self._loop_ident, ns, AWAITING, ())

    def _task(self, key: Any, name: str, ident: int, ns: int, cause: str, stack: Stack) -> ThreadLook:
        ts = self._worker.state.tasks.get(key)
        prefix = "" if ts is None else prefix_of(ts.prefix)
        return ThreadLook("", TASK, name, ident, prefix, fitting(key), ns, cause, False, stack)


class _Causes:
    """Causes of the threads' waiting, by two readings of the kernel's files; none where it has no such files."""

    def __init__(self, threads: Sequence[threading.Thread], opened: ExitStack) -> None:
        self._files: dict[int, ThreadFiles] = {}
        if why_not() is not None:
            return
        reader = opened.enter_context(closing(HeldReader()))
        self._states = WaitStates(platform.machine(), reader, is_gil=find_gil(reader))
        for thread in threads:
            with suppress(OSError):  # it has just ended
                assert thread.ident is not None
                assert thread.native_id is not None
                self._files[thread.ident] = opened.enter_context(closing(ThreadFiles(reader, thread.native_id)))
        self._at = time.monotonic_ns()
        self._before = {ident: files.clocks() for ident, files in self._files.items()}

    def of(self, ident: int, stack: Stack) -> str:
        """Cause of a thread: COMPUTING, or a cause of waiting; empty if unknown."""
        files = self._files.get(ident)
        if files is None:
            return ""
        before, now = self._before[ident], files.clocks()
        if before is None or now is None:
            return ""
        half = (time.monotonic_ns() - self._at) / 2
        # The caller has the GIL, so whoever executes Python waits for it now.
        if now.cpu - before.cpu >= half:
            return COMPUTING
        if now.core - before.core >= half:
            return CORE
        state = self._states.state(files.syscall(), files)
        if state == RUNNING:
            return COMPUTING
        return told(state, stack)[0] if state in (LOCK, SLEEP, POLLS) else state


def _source_of(looks: Iterable[ThreadLook]) -> dict[Frame, str]:
    """Source of the innermost line of the user's own code in each task's stack."""
    lines = {next((frame for frame in reversed(look.stack) if is_own(frame)), None) for look in looks if look.prefix}
    found = {frame: linecache.getline(frame.file, frame.line).strip() for frame in lines if frame is not None}
    return {frame: fitting(line, MAX_LINE) for frame, line in found.items() if line}
