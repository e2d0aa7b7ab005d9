"""Tasks for the workers of a cluster: they use a GPU that is not there, through the stub."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from types import ModuleType

#: By native id of a thread. Not the id itself: the stub has few streams, and those of two threads may be the same one.
_streams: dict[int, int] = {}
#: Streams that no thread has yet; 7 is the stub's default. Two threads that begin at once get one each.
_free_streams = itertools.count(8)


def begin(directory: str) -> None:
    """Let this worker's process look as if torch had just initialised CUDA on its one GPU; once."""
    from tests.gpu import stub_gpu as stub

    if hasattr(stub, "cupti"):
        return
    try:
        import torch.autograd.profiler as profiler
    except ImportError:
        sys.modules["torch"] = ModuleType("torch")
    else:
        # A torch without CUDA has a profiler that leaves CUPTI alone.
        profiler._prepare_profiler = lambda *_: stub.cupti.stub_other_begin()
        profiler._disable_profiler = lambda *_: stub.cupti.stub_other_end()
    stub.load(directory, schedule=stub.BLOCK)


def train(seconds: float, kernels: int = 1) -> float:
    """Kernels on a stream of this thread's own, waited for; gives the seconds that it waited at least.

    On a busy machine a core may be waited for before the kernels are.
    """
    from tests.gpu import stub_gpu as stub
    from tests.thread_marks import Marking

    thread = threading.get_native_id()
    if thread not in _streams:
        _streams[thread] = next(_free_streams)
    stream = _streams[thread]
    spans = [stub.launch(seconds, name="gemm", stream=stream) for _ in range(kernels)]
    clocks = Marking()
    stub.sync(stream=stream)
    return max(0.0, (spans[-1].end - clocks.start - clocks.read().core_wait) / 1e9)


def crash(seconds: float) -> None:
    """As :func:`train`, and then it fails."""
    train(seconds)
    raise ArithmeticError("injected")


def forget(seconds: float) -> None:
    """A kernel that nobody waits for."""
    from tests.gpu import stub_gpu as stub

    stub.launch(seconds, name="tail")


def profile(seconds: float) -> None:
    """What a task does that profiles itself."""
    import torch.autograd.profiler as profiler

    profiler._prepare_profiler(None, {"CUDA"})
    time.sleep(seconds)
    profiler._disable_profiler()
