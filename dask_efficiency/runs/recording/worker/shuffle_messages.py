"""ShuffleMessages: the messages that P2P shuffles send from a worker, while it is recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import Lock
from time import monotonic_ns
from typing import Any

from distributed.shuffle._buffer import ShardsBuffer
from distributed.shuffle._core import ShuffleRun, barrier_key

from dask_efficiency.plugin.patches import SHUFFLE_MESSAGE, Replacements

#: Called with the barrier's key, the receiver's address, bytes, and when it was sent and arrived.
Sent = Callable[[str, str, int, int, int], object]

#: By address of the worker that sends.
_recorded: dict[str, Sent] = {}
_lock = Lock()
_replacements = Replacements()


def record(address: str, sent: Sent) -> None:
    """Tell of each message that a worker sends, until :func:`forget`; nothing where upstream sends otherwise."""
    with _lock:
        if not _recorded:
            _replacements.put(SHUFFLE_MESSAGE, ShardsBuffer, _noting)
        _recorded[address] = sent


def forget(address: str) -> None:
    """Tell no more; safe to call twice."""
    with _lock:
        if _recorded.pop(address, None) is not None and not _recorded:
            _replacements.put_back()


def _noting(process: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(process)
    async def noted(buffer: Any, to: Any, shards: Any, size: int) -> Any:
        start = monotonic_ns()
        try:
            return await process(buffer, to, shards, size)
        finally:
            run = getattr(getattr(buffer, "send", None), "__self__", None)
            if isinstance(run, ShuffleRun):  # else parts are written to disk
                sent = _recorded.get(run.local_address)
                if sent is not None:
                    sent(barrier_key(run.id), to, size, start, monotonic_ns())

    return noted
