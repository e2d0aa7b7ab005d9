from __future__ import annotations

import math

from dask_efficiency.accounts.sensors.gpus import gpu_sensors
from dask_efficiency.accounts.sensors.names import GPU_SENSORS


def together(*readings: dict[str, float]) -> dict[str, float]:
    found = gpu_sensors({f"GPU-{i}": row for i, row in enumerate(readings)})
    return {name: value for name, value in zip(GPU_SENSORS, found, strict=True) if not math.isnan(value)}


def test_the_worst_of_several_gpus_shows():
    assert together(
        {"sm_clock_hertz": 1e9, "temperature_celsius": 50, "power_watts": 100, "throttled_thermal": 0},
        {"sm_clock_hertz": 5e8, "temperature_celsius": 90, "power_watts": 50, "throttled_thermal": 1},
    ) == {"gpu_clock": 5e8, "gpu_temperature": 90, "gpu_power": 150, "gpu_throttled": 0.5}


def test_throughput_is_of_both_directions_or_absent():
    both = {"pcie_received_bytes_per_second": 1.0, "pcie_sent_bytes_per_second": 2.0}
    assert together({**both, "nvlink_sent_bytes_per_second": 1.0}) == {"gpu_pcie": 3.0}


def test_without_a_gpu_all_is_absent():
    assert all(map(math.isnan, gpu_sensors(None)))
    assert len(gpu_sensors({})) == len(GPU_SENSORS)
