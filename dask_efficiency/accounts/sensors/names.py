"""The names of the sensors: columns of a trace's series, and metrics that detectors compare."""

from __future__ import annotations

#: Of the host that a worker is on, with what each says. Shares are of the time since the reading before, in [0, 1];
#: rates are of counters over that time. What a host does not have is absent, which is not zero. The order is that in
#: which they travel.
HOST_SENSORS: dict[str, str] = {
    "host_cpu": "Share of all cores' time in which they computed",
    "steal": "Share of all cores' time that the hypervisor gave to others",
    "run_queue": "Threads that run or wait for a core, by core",
    "cpu_clock": "Hertz, the mean over some of the cores",
    "cpu_throttles": "How often a second a core was slowed down for heat",
    "cpu_pressure": "Share of time in which some thread waited for a core",
    "memory_available": "Bytes that can be had without swapping",
    "swap_in": "Bytes a second read back from swap",
    "swap_out": "Bytes a second written to swap",
    "memory_pressure": "Share of time in which some thread waited for memory",
    "disk_busy": "Share of time in which the busiest disk worked",
    "disk_wait": "Seconds that a request to a disk took, the mean",
    "disk_pressure": "Share of time in which some thread waited for reads or writes",
    "net_errors": "Packets a second that were received or sent with an error",
    "net_drops": "Packets a second that were dropped",
    "retransmits": "TCP segments a second that were sent again",
    "rdma_read": "Bytes a second that RDMA received",
    "rdma_write": "Bytes a second that RDMA sent",
    "rdma_ecn": "RDMA packets a second that came with a mark of congestion (ECN)",
    "rdma_cnp": "Notices of congestion (CNP) a second, sent and received",
    "pfc_sent": "Pause frames (PFC) a second that were sent",
    "pfc_received": "Pause frames (PFC) a second that were received",
}

#: Of the GPUs that a worker uses, with what each says of several of them.
GPU_SENSORS: dict[str, str] = {
    "gpu_utilisation": "Share of time in which a kernel of any process ran, the mean over the GPUs",
    "gpu_memory": "Bytes that are taken, by whatever process, of all GPUs",
    "gpu_clock": "Hertz of the slowest GPU's multiprocessors",
    "gpu_temperature": "Degrees Celsius of the hottest GPU",
    "gpu_power": "Watts of all GPUs",
    "gpu_throttled": "Share of the GPUs whose clock is lower for heat",
    "gpu_pcie": "Bytes a second over PCIe, to and from all GPUs",
    "gpu_nvlink": "Bytes a second over NVLink, to and from all GPUs",
}

SENSORS = (*HOST_SENSORS, *GPU_SENSORS)
