"""Results that were there before a recording began, such as scattered data."""

from __future__ import annotations

from collections.abc import Mapping

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.simulation.engine.memory import Result
from dask_efficiency.simulation.engine.scheduler import VirtualScheduler
from dask_efficiency.simulation.engine.worker import VirtualWorker
from dask_efficiency.simulation.engine.workload import Workload
from dask_efficiency.simulation.model.events import EventHeap

#: Who holds on to them: nobody is seen to let go of them.
_CLIENT = "data"


class NoWorkerError(RuntimeError):
    """Nobody is there to have results."""


def put_data(
    workload: Workload,
    scheduler: VirtualScheduler,
    workers: Mapping[str, VirtualWorker],
    addresses: Mapping[str, str],
    clock: EventHeap,
) -> None:
    """Put what was there before the recording on the workers that had it, as far as these are there.

    Parameters
    ----------
    workers
        By address.
    addresses
        By recorded address: the simulated one.
    """
    if not workload.data:
        return
    trace, there = workload.trace, list(workers)
    if not there:
        raise NoWorkerError(
            f"{len(workload.data)} results were there before the recording, but no worker is there at the start to "
            "have them; expected at least one that does not join later"
        )
    holder = dict(zip(trace.transfers.task.tolist()[::-1], trace.transfers.sender.tolist()[::-1], strict=True))
    held: dict[str, dict[object, Result]] = {address: {} for address in there}
    for place, task in enumerate(workload.data):
        recorded = holder.get(task, MISSING)
        address = addresses.get(trace.workers[recorded].address, "") if recorded != MISSING else ""
        if address not in held:
            address = there[place % len(there)]
        held[address][workload.keys[task]] = Result(max(int(trace.tasks.nbytes[task]), 0))
    scheduler.add_virtual_client(_CLIENT, clock)
    for address, data in held.items():
        if data:
            workers[address].put(data)
            scheduler.update_data(
                who_has={key: [address] for key in data},  # type: ignore[misc]
                nbytes={key: result.nbytes for key, result in data.items()},  # type: ignore[misc]
                client=_CLIENT,
            )
