from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from distributed.shuffle._buffer import ShardsBuffer
from distributed.shuffle._core import ShuffleRun

from dask_efficiency.plugin.patches import Replacements
from dask_efficiency.runs.recording.worker import shuffle_messages


class Run(ShuffleRun):  # type: ignore[type-arg]  # of parts that nobody looks at
    """Of a shuffle, as much as is asked for."""

    def __init__(self, address: str) -> None:
        self.local_address, self.id = address, "s"  # type: ignore[assignment]  # a name of its own for texts


Run.__abstractmethods__ = frozenset()


def test_messages_of_a_recorded_worker_are_told_and_no_others(monkeypatch: Any) -> None:
    async def process(self: Any, id: str, shards: Any, size: int) -> str:  # noqa: A002 (as upstream names it)
        await asyncio.sleep(0)
        return "done"

    monkeypatch.setattr(ShardsBuffer, "process", process)
    # Whatever other tests left recorded.
    monkeypatch.setattr(shuffle_messages, "_recorded", {})
    monkeypatch.setattr(shuffle_messages, "_replacements", Replacements())
    told: list[tuple[Any, ...]] = []
    shuffle_messages.record("tcp://a", lambda *message: told.append(message))
    try:
        for buffer in (
            SimpleNamespace(send=Run("tcp://a").send),
            SimpleNamespace(send=Run("tcp://b").send),  # not recorded
            SimpleNamespace(),  # a buffer that writes to disk
        ):
            assert asyncio.run(ShardsBuffer.process(buffer, "tcp://c", [], 7)) == "done"
    finally:
        shuffle_messages.forget("tcp://a")
        shuffle_messages.forget("tcp://a")
    [(barrier, to, nbytes, start, stop)] = told
    assert (barrier, to, nbytes) == ("shuffle-barrier-s", "tcp://c", 7)
    assert 0 < start <= stop
    assert ShardsBuffer.process is process
