"""TorchProfile: what ``torch.profiler`` sees of one thread's work, and never two profilers at once in a process."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

from dask_efficiency.gpu.profilers import GAVE_UP, PROFILERS, NotProfiled
from dask_efficiency.runs.trace.profiles import MAX_PROFILE_BYTES

#: Kineto's JSON of an event takes a tenth of this when it is compressed; more is not even compressed.
MAX_JSON_BYTES = 32 * MAX_PROFILE_BYTES

#: zlib's level: a tenth of the size in 3 ms a MB; higher ones take several times as long for a fifth less.
_LEVEL = 3

#: What is read of Kineto's JSON at a time; and at its end, where there may be blanks after the last brace.
_PIECE_BYTES, _END_BYTES = 1 << 20, 100


class TorchProfile:
    """A profile of what the calling thread does with torch, from now until :meth:`stop` in the same thread.

    Two profiles at once in one process, in two threads, crash it (SIGSEGV when the first one stops, torch 2.13), and so
    does one that is stopped in another thread than began it, as soon as the next one begins. So there is one at a time;
    a profiler of the user's that begins meanwhile ends ours before, or waits for that.

    The module torch is never imported: it has been, or there is nothing to profile.

    Raises
    ------
    NotProfiled
        If torch is not there, or another profiler is at work.
    """

    def __init__(self) -> None:
        PROFILERS.enter(self)
        try:
            self._ident = threading.get_ident()
            torch: Any = sys.modules["torch"]
            self._profile: Any = torch.profiler.profile(**_settings(torch))
            self._profile.start()
        except BaseException:
            PROFILERS.leave(self)
            raise
        #: When it had begun: by the clock of the day, which Kineto's times are of, and by the monotonic clock.
        self.started, self.start = time.time_ns(), time.monotonic_ns()
        #: When it ended, by the monotonic clock; None while it has not.
        self.stopped: int | None = None
        #: Whether a profiler of the user's could not wait for it any more. It must not be stopped then.
        self.abandoned = False
        PROFILERS.began(self)

    @property
    def ident(self) -> int:
        """Of the thread that it is of, as :func:`threading.get_ident`."""
        return self._ident

    def stop(self) -> None:
        """End it, in its own thread; safe to call twice, as a profiler of the user's may have ended it."""
        if self.stopped is not None:
            return
        self.stopped = time.monotonic_ns()
        PROFILERS.ends(self)
        try:
            if not self.abandoned:
                self._profile.stop()
        finally:
            PROFILERS.leave(self)

    def export(self) -> bytes:
        """Kineto's JSON, compressed by gzip; may be called in any thread.

        Raises
        ------
        NotProfiled
            If nothing was recorded, or it is larger than
            :data:`~dask_efficiency.runs.trace.profiles.MAX_PROFILE_BYTES`.
        """
        if self.abandoned:
            raise NotProfiled(GAVE_UP)
        with tempfile.TemporaryDirectory(prefix="dask-efficiency-") as folder:
            path = os.path.join(folder, "profile.json")
            self._profile.export_chrome_trace(path)
            self._profile = None
            if os.path.getsize(path) > MAX_JSON_BYTES:
                raise NotProfiled(f"the profile is larger than {MAX_JSON_BYTES >> 20} MiB of JSON")
            content = _compressed(path)
        if len(content) > MAX_PROFILE_BYTES:
            raise NotProfiled(f"the profile is larger than {MAX_PROFILE_BYTES >> 20} MiB, compressed")
        return content


def _compressed(path: str) -> bytes:
    """Kineto's JSON by gzip; in pieces, as all of it may be much of what a worker has left."""
    last = b""
    packed = io.BytesIO()
    with open(path, "rb") as file, gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as zipped:
        while piece := file.read(_PIECE_BYTES):
            zipped.write(piece)
            last = (last + piece)[-_END_BYTES:]
    if not last.rstrip().endswith(b"}"):
        raise NotProfiled("its file could not be written whole: is the disk full?")
    return packed.getvalue()


def _settings(torch: Any) -> dict[str, Any]:
    """What to record: the GPU too where something has initialised it; no context is made for a profile."""
    activity = torch.profiler.ProfilerActivity
    if not torch.cuda.is_initialized():
        return {"activities": [activity.CPU]}
    settings = {"activities": [activity.CPU, activity.CUDA]}
    with suppress(AttributeError, TypeError):  # an older torch
        # Else nothing says what the CPU waited for on the GPU, and that has to be inferred.
        settings["experimental_config"] = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    return settings
