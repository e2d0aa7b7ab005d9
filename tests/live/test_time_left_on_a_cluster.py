"""The time left of a real cluster: it is said while equal tasks run, and no more when they are done."""

from __future__ import annotations

import time
from typing import Any

import pytest
from distributed import Client

from tests.plugin.watch import eventually

pytestmark = pytest.mark.cluster


def nap(number: int) -> None:
    time.sleep(0.25)


def test_the_time_left_is_said_while_equal_tasks_run_and_not_when_they_are_done(client: Client) -> None:
    def asked() -> Any:
        return client.sync(client.scheduler.efficiency, action="left")["left"]

    assert asked() is None
    futures = client.map(nap, range(2_000), pure=False)  # two minutes
    seconds, least, most = eventually(asked)
    assert least <= seconds <= most
    assert 1.0 < most < 3_600.0
    assert client.sync(client.scheduler.efficiency, action="live")["nthreads"] == 4
    client.cancel(futures)
    eventually(lambda: asked() is None)
