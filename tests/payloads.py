"""What travels with heartbeats and at the end of windows, and the accounts that come of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.cluster.account import WIDTH, AccountPart, place
from dask_efficiency.accounts.facts import decode_facts
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals
from dask_efficiency.accounts.worker.balance import Availability, Outcome
from dask_efficiency.accounts.worker.ledger import Ledger


def through_msgpack(payload: Any) -> Any:
    """As Dask sends it."""
    return msgpack.unpackb(msgpack.packb(payload, use_bin_type=True), strict_map_key=False, use_list=False)


def ledger_with_everything() -> Ledger:
    """Four slots: one held, one frozen task, tasks settled of two prefixes, the window ``w`` open since 10."""
    ledger = Ledger(4, at=0)
    ledger.open_window("w", at=10)
    for i, outcome in enumerate(Outcome):
        ledger.reserve(i, f"prefix-{i % 2}", "span", at=20 + 100 * i)
        hold = ledger.release(i, at=120 + 100 * i)
        assert hold is not None
        ledger.finalize(hold, outcome, cpu=40, gpu=10, wall=70, library=5, spill=20)
    ledger.spilled(1, start=525, stop=527)
    ledger.reserve("frozen", "inc", at=530)
    ledger.release("frozen", at=540)
    ledger.reserve("running", "inc", at=550)
    ledger.observe(Availability.RUNNING, 1, 1, at=560)
    return ledger


def watched(kernels: int, idle: int, uuid: str = "GPU-0") -> GpuTotals:
    """A worker's use of its GPU."""
    device = DeviceTotals(uuid, "H100", kernels + idle, kernels, 0, idle, {"train": kernels})
    return GpuTotals("cupti", devices=(device,), kernel_ns=kernels, attributed_ns=kernels)


def account_of(parts: Mapping[AccountPart, Mapping[str, int]]) -> NDArray[np.int64]:
    """An account of some parts by name; what is missing is 0."""
    account = np.zeros(WIDTH, np.int64)
    for part, row in parts.items():
        for name, n in row.items():
            account[place(part, name)] = n
    return account


def time_of_workers(reply: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Thread time by worker and bucket in a reply, in nanoseconds."""
    return {name: row.to_nanoseconds() for name, row in decode_facts(reply["facts"]).by_worker.items()}
