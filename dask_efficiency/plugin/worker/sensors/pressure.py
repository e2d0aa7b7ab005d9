"""Pressure stall information: the share of time in which some thread waited for a resource."""

from __future__ import annotations

from dask_efficiency.plugin.worker.sensors.files import KeptFiles


def stalled_seconds(proc: KeptFiles, resource: str) -> float | None:
    """Seconds since the start in which some thread waited for ``cpu``, ``memory`` or ``io``; None if nobody counts."""
    line = proc.read(f"pressure/{resource}").partition(b"\n")[0]
    kind, _, total = line.partition(b" ")[0], *line.rpartition(b"total=")[1:]
    return int(total) / 1e6 if kind == b"some" and total.isdigit() else None
