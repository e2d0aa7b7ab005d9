"""The names of a GPU's sensor readings, on the wire, in Prometheus and in alerts."""

from __future__ import annotations

#: The meaning of each name, which ends in its unit. A reading that a device does not have is left out.
#: Those that end in ``_total`` only grow, until the driver is loaded again.
READINGS: dict[str, str] = {
    "sm_clock_hertz": "Clock of the streaming multiprocessors",
    "sm_clock_max_hertz": "The fastest that this clock can be",
    "temperature_celsius": "Temperature of the chip",
    "power_watts": "Power that the board draws",
    "power_limit_watts": "Power that the board may draw",
    "memory_used_bytes": "Memory of the device that is taken, by whatever process",
    "memory_total_bytes": "Memory of the device",
    "utilisation_ratio": "Share of the last sample period in which a kernel of any process ran",
    "ecc_corrected_errors_total": "Memory errors that were corrected since the driver was loaded",
    "ecc_uncorrected_errors_total": "Memory errors that could not be corrected since the driver was loaded",
    "pcie_link_generation": "Generation of the PCIe link now",
    "pcie_link_generation_max": "Generation that the device and its slot can have",
    "pcie_link_width": "Lanes of the PCIe link now",
    "pcie_link_width_max": "Lanes that the device and its slot can have",
    "pcie_replays_total": "Packets that had to be sent again over PCIe",
    "nvlink_errors_total": "Errors of all NVLinks of the device",
    "pcie_received_bytes_per_second": "What the device received over PCIe, in the last 20 ms",
    "pcie_sent_bytes_per_second": "What the device sent over PCIe, in the last 20 ms",
    "nvlink_received_bytes_per_second": "What the device received over all NVLinks since the reading before",
    "nvlink_sent_bytes_per_second": "What the device sent over all NVLinks since the reading before",
    "throttle_reasons": "Why the clock is lower than it could be, a bit mask as NVML has it",
    "throttled_thermal": "1 if the clock is lower for heat",
    "throttled_power": "1 if the clock is lower for power",
}
