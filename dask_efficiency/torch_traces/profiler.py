"""TorchProfile: ``torch.profiler`` around one thread's work, and never two profilers at once in a process."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

from dask_efficiency.gpu.profilers import GAVE_UP, PROFILERS, NotProfiled
from dask_efficiency.runs.trace.run_trace import MAX_PROFILE_BYTES
from dask_efficiency.torch_traces.kineto.parse import BLOCK

#: Bytes of JSON above which a profile is refused before it is compressed: gzip shrinks Kineto's JSON about tenfold, and
#: hardly any by more than 32.
MAX_JSON_BYTES = 32 * MAX_PROFILE_BYTES

#: zlib's level: 3 ms a MB for a tenth of the size. Higher levels take several times as long for a fifth less.
_LEVEL = 3


class TorchProfile:
    """A profile of the calling thread's work with torch, from now until :meth:`stop` in the same thread.

    Two profiles at once in one process crash it (SIGSEGV when the first one stops, torch 2.13). So does a profile that
    another thread stops, once the next one begins. So there is one at a time, and a profiler of the user's ends ours
    before it begins, or waits until ours has ended.

    This never imports torch: where nobody has, there is nothing to profile. Raises NotProfiled if torch is not there,
    or another profiler is at work.
    """

    def __init__(self) -> None:
        PROFILERS.enter(self)
        try:
            #: Id of the profiled thread, as :func:`threading.get_ident`.
            self.ident = threading.get_ident()
            torch: Any = sys.modules["torch"]
            self._profile: Any = torch.profiler.profile(**_settings(torch))
            self._profile.start()
        except BaseException:
            PROFILERS.leave(self)
            raise
        #: When it began, by the clock of the day, as Kineto's times are, and by the monotonic clock.
        self.started, self.start = time.time_ns(), time.monotonic_ns()
        #: When it ended, by the monotonic clock; None while it runs.
        self.stopped: int | None = None
        #: True if a profiler of the user's gave up waiting for this one, which must not be stopped then.
        self.abandoned = False
        PROFILERS.began(self)

    def stop(self) -> None:
        """End the profile, in its own thread. Safe to call twice: a profiler of the user's may have ended it."""
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
        """Kineto's JSON, compressed by gzip, in any thread; NotProfiled if nothing was recorded, or it is too large."""
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
    """Compress Kineto's JSON in pieces: a worker may have no memory for all of it."""
    packed = io.BytesIO()
    with open(path, "rb") as file, gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as zipped:
        shutil.copyfileobj(file, zipped, BLOCK)
        file.seek(max(file.tell() - BLOCK, 0))
        ends = file.read().rstrip().endswith(b"}")  # blanks may follow
    if not ends:
        raise NotProfiled("its file could not be written whole: is the disk full?")
    return packed.getvalue()


def _settings(torch: Any) -> dict[str, Any]:
    """Settings of the profiler: the GPU too, if something has initialised it. A profile makes no context."""
    activity = torch.profiler.ProfilerActivity
    if not torch.cuda.is_initialized():
        return {"activities": [activity.CPU]}
    settings = {"activities": [activity.CPU, activity.CUDA]}
    with suppress(AttributeError, TypeError):  # an older torch
        # Without it the trace lacks what the CPU waited for on the GPU, which has to be inferred then.
        settings["experimental_config"] = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    return settings
