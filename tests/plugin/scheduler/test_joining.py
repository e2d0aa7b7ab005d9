"""What workers say of themselves: an impossible registration is named, and costs nobody else anything."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.plugin import names
from dask_efficiency.plugin.scheduler.joining import MAX_THREADS, check_registration
from dask_efficiency.report.replies import unpacked
from tests.payloads import time_of_workers
from tests.plugin.loops import within
from tests.plugin.scheduler.test_accounts import worker
from tests.plugin.scheduler.test_open_windows import Cluster, cluster

#: Fields of registrations, with the beginning of the reason.
ODD: list[tuple[str, Any, str]] = [
    *[("nthreads", n, "nthreads is ") for n in (-1, 0, 3_000_000, 10**9, 10**5_000, 2.5, True, "4", None, [1])],
    ("memory_limit", "4 GB", "memory_limit is '4 GB'"),
    ("memory_limit", 10**400, "memory_limit is "),
    ("memory_limit", -1, "memory_limit is -1"),
    ("server_id", 7, "server_id is 7"),
    ("nanny", ["tcp://a"], "nanny is ['tcp://a']"),
    ("pid", "(a+)+$", "pid is "),
    ("resources", {"GPU": "one"}, "resources['GPU'] is 'one'"),
    ("resources", {"GPU": float("nan")}, "resources['GPU'] is nan"),
    ("resources", {"GPU": 1, 7: 1}, "the name of a resource is 7"),
    ("resources", None, "resources is None"),
    ("extra", {"gpu": {"name": "x" * 1_001}}, "the name of a GPU is "),
    ("extra", {"gpu": {"name": [7]}}, "the name of a GPU is [7]"),
]


def joins_oddly(made: Cluster, field: str, value: Any) -> None:
    """A worker registers with one odd field, after which its heartbeats come as others' do."""
    ws: Any = worker(9, made.scheduler)
    setattr(ws, field, value)
    made.scheduler.workers[ws.address] = ws
    ws.metrics, ws.last_seen = {names.METRIC: {"i": "x", "n": 1}}, time.time()
    made.plugin.add_worker(made.scheduler, ws.address)


@pytest.mark.parametrize(("field", "value", "reason"), ODD, ids=[f"{i}-{row[0]}" for i, row in enumerate(ODD)])
@within(cluster)
async def test_a_worker_that_registers_oddly_is_named_and_costs_others_nothing(made, *, field, value, reason):
    joins_oddly(made, field, value)
    accounts = made.meter.accounts
    assert accounts.poll()
    accounts.idle.sample()
    assert (made.meter.guard.off, accounts.idle.guard.off, accounts.stragglers._guard.off) == (None, None, None)
    assert made.meter.parts.failures() == []
    await made.handle(names.OPEN, "w")
    for action, window in ((names.CLOSE, "w"), (names.LIFE, "")):
        reply = unpacked(await made.handle(action, window))
        ((name, why),) = reply["not_measured"].items()
        assert why.startswith(f"it registered oddly: {reason}")
        assert name == "worker-9"
        assert time_of_workers(reply).keys() == reply["nthreads"].keys() == {"worker-1", "worker-2"}
        assert reply["environment"]["threads"] == "4"
    del made.scheduler.workers["tcp://10.0.0.9:40000"]
    made.plugin.remove_worker(made.scheduler, "tcp://10.0.0.9:40000", stimulus_id="worker-close-1.5")
    await made.check_window("x")


def test_usual_registrations_are_taken():
    ws: Any = worker(1, None)  # type: ignore[arg-type]
    for field, value in (
        *(("nthreads", 1), ("nthreads", 1_792), ("nthreads", MAX_THREADS), ("name", 0), ("name", "x" * 10**6)),
        *(("nanny", "tcp://10.0.0.1:50000"), ("resources", {"GPU": 2, "slots": float("inf")})),
        *(("extra", {}), ("extra", None), ("extra", {"gpu": {"name": "NVIDIA H100", "memory-total": 1}})),
        ("extra", {"gpu": {"name": None}}),
    ):
        setattr(ws, field, value)
        check_registration(ws)
    ws.nthreads = MAX_THREADS + 1
    with pytest.raises(RefusedPayload, match="nthreads is 10001; expected 1 to 10000"):
        check_registration(ws)
