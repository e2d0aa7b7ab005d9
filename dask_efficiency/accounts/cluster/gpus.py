"""GPUs of the present workers, and those that several workers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.gpu.totals import DeviceTotals


def own_gpus(present: Iterable[Presence]) -> dict[str, dict[str, int]]:
    """Nanoseconds by activity of the GPUs that one worker uses alone, by a key that stays the same."""
    found = list(devices_of(present))
    several = shared(device.uuid for _, device in found)
    return {
        f"{worker.address} {worker.joined} {device.uuid}": {
            "kernels": device.kernels,
            "copies": device.copies,
            "idle": device.idle,
        }
        for worker, device in found
        if device.uuid not in several
    }


def devices_of(present: Iterable[Presence]) -> Iterator[tuple[Presence, DeviceTotals]]:
    """Each worker with each of its GPUs."""
    for presence in present:
        if (gpu := presence.gpu) is not None:
            for device in gpu.devices:
                yield presence, device


def shared(uuids: Iterable[str]) -> set[str]:
    """The GPUs that several workers use."""
    return {uuid for uuid, users in Counter(uuids).items() if users > 1}
