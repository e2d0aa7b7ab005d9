"""What the readings of a worker's GPUs say together, as the sensors of one worker."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from dask_efficiency.accounts.sensors.names import GPU_SENSORS


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)


#: By sensor, the readings that it is the sum of, and what several GPUs have together: a fault of one of them must show.
_OF_READINGS: dict[str, tuple[tuple[str, ...], Callable[[Iterable[float]], float]]] = {
    "gpu_utilisation": (("utilisation_ratio",), _mean),
    "gpu_memory": (("memory_used_bytes",), sum),
    "gpu_clock": (("sm_clock_hertz",), min),
    "gpu_temperature": (("temperature_celsius",), max),
    "gpu_power": (("power_watts",), sum),
    "gpu_throttled": (("throttled_thermal",), _mean),
    "gpu_pcie": (("pcie_received_bytes_per_second", "pcie_sent_bytes_per_second"), sum),
    "gpu_nvlink": (("nvlink_received_bytes_per_second", "nvlink_sent_bytes_per_second"), sum),
}


def gpu_sensors(readings: Mapping[str, Mapping[str, float]] | None) -> Sequence[float]:
    """The sensors :data:`~dask_efficiency.accounts.sensors.names.GPU_SENSORS`, in order; NaN where no GPU has one.

    Parameters
    ----------
    readings
        By GPU, as of :data:`~dask_efficiency.accounts.gpu.readings.READINGS`; None where there is no GPU.
    """
    if not readings:
        return _NOTHING
    found = []
    for names, together in _OF_READINGS.values():
        each = [sum([row[name] for name in names]) for row in readings.values() if names[0] in row and names[-1] in row]
        found.append(together(each) if each else math.nan)
    return found


_NOTHING = (math.nan,) * len(GPU_SENSORS)
