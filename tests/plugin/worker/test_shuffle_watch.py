from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.metered import Metered
from dask_efficiency.plugin.worker.shuffle_watch import ShuffleWatch

RECEIVE = Metered("p2p", "", "background-comms", "receive", "seconds")


async def shuffle_receive(shuffle_id: str, run_id: int, data: Any) -> dict[str, str]:
    await asyncio.sleep(0.02)
    if data is None:
        raise ValueError("of the shuffle")
    return {"status": "OK"}


async def shuffle_inputs_done(shuffle_id: str, run_id: int) -> None:
    pass


def worker(**handlers: Any) -> Any:
    return SimpleNamespace(handlers=handlers)


def test_what_a_worker_takes_in_is_timed_whether_it_fails_or_not_and_goes_on_as_ever() -> None:
    own = worker(shuffle_receive=shuffle_receive, shuffle_inputs_done=shuffle_inputs_done)
    watch = ShuffleWatch(own)
    watch.start()
    began = time.monotonic_ns()
    assert asyncio.run(own.handlers["shuffle_receive"](shuffle_id="s", run_id=1, data=b"x")) == {"status": "OK"}
    with pytest.raises(ValueError, match="of the shuffle"):
        asyncio.run(own.handlers["shuffle_receive"](shuffle_id="s", run_id=1, data=None))
    assert 2 * 19_000_000 <= watch.metered()[RECEIVE] <= time.monotonic_ns() - began
    watch.stop()
    assert own.handlers["shuffle_receive"] is shuffle_receive
    assert own.handlers["shuffle_inputs_done"] is shuffle_inputs_done


def test_it_waits_for_the_worker_to_take_part_in_shuffles_and_watches_once() -> None:
    own = worker()
    watch = ShuffleWatch(own)
    watch.start()
    own.handlers.update(shuffle_receive=shuffle_receive, shuffle_inputs_done=shuffle_inputs_done)
    watch.start()
    watched = dict(own.handlers)
    assert watched["shuffle_receive"] is not shuffle_receive
    watch.start()
    assert own.handlers == watched
