"""The rows about GPUs: what they did, and what their sensors say."""

from __future__ import annotations

from typing import Any

from dashboards.generator.by_worker import MAX_BARS, TO_ONE_WORKER
from dashboards.generator.panels import BAD_COLOUR, FAIR_COLOUR, GOOD_COLOUR, About, Query, bars, lines, numbers, stack
from dashboards.generator.queries import CHOSEN_WORKERS, WORKER, Growth, gain, rate, ratio, select, total
from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.show.drawn_buckets import COLOURS, GPU_COLOURS

GPU_SECONDS = "dask_efficiency_gpu_seconds_total"
WORKER_GPU_SECONDS = "dask_efficiency_worker_gpu_seconds_total"

NO_GPU = "no GPU is measured"
NO_READING = "no GPU, or no nvidia-ml-py on the workers"


def of_clusters() -> list[Any]:
    """What the GPUs did, and what their sensors say."""
    reading = "the driver's last reading, by GPU"
    return [
        lines(
            About(60, "GPU kernels, by GPU", "percentunit", 12, 8, NO_GPU),
            "Share of the time in which at least one kernel of the worker ran, by GPU. A GPU counts from when "
            "a task has used it; one that several workers share counts for each.",
            Query(
                ratio(
                    total(rate(select(GPU_SECONDS, 'activity="kernels"')), by="uuid"),
                    total(rate(select(GPU_SECONDS)), by="uuid"),
                ),
                "{{uuid}}",
            ),
            limit=1,
        ),
        stack(
            About(61, "What the GPUs did", "short", 12, 8, NO_GPU),
            "GPUs, on average, by what they did: kernels, copies with no kernel beside them, or nothing (idle).",
            Query(total(rate(select(GPU_SECONDS)), by="activity"), "{{activity}}"),
            colours=GPU_COLOURS,
        ),
        lines(
            About(62, "GPU clock", "hertz", 8, 7, NO_READING),
            f"Clock of the streaming multiprocessors, {reading}. One that is below its peers at the same work is "
            "throttled.",
            Query(_reading("sm_clock_hertz"), "{{uuid}}"),
        ),
        lines(
            About(63, "GPU temperature", "celsius", 8, 7, NO_READING),
            f"Temperature of the chip, {reading}.",
            Query(_reading("temperature_celsius"), "{{uuid}}"),
        ),
        lines(
            About(64, "GPUs throttled", "short", 8, 7, NO_READING),
            "GPUs that run below their clock, for heat or for power. For power many do whenever they are busy.",
            Query(f"sum({_reading('throttled_thermal')})", "heat"),
            Query(f"sum({_reading('throttled_power')})", "power"),
            colours={"heat": BAD_COLOUR, "power": FAIR_COLOUR},
            up_to=1,
        ),
        numbers(
            About(65, "Uncorrected ECC errors", "short", 6, 4, NO_READING),
            "Errors of GPU memory that could not be corrected, over the time shown.",
            Query(total(gain(select("dask_efficiency_gpu_ecc_uncorrected_errors_total"))), "errors"),
            steps=((None, GOOD_COLOUR), (1, BAD_COLOUR)),
            decimals=0,
        ),
        numbers(
            About(66, "PCIe links too narrow", "short", 6, 4, NO_READING),
            "GPUs whose PCIe link has fewer lanes now than it could have.",
            Query(f"sum({_reading('pcie_link_width')} < bool {_reading('pcie_link_width_max')})", "GPUs"),
            steps=((None, GOOD_COLOUR), (1, BAD_COLOUR)),
            decimals=0,
        ),
        numbers(
            About(67, "Coverage", "percentunit", 6, 4, NO_GPU),
            "Share of the kernels' time that is known to be some task's. The rest is of threads that no task "
            "is known to have started.",
            Query(f"avg({select('dask_efficiency_gpu_coverage_ratio')})", "coverage"),
            steps=((None, BAD_COLOUR), (0.8, FAIR_COLOUR), (0.95, GOOD_COLOUR)),
            decimals=1,
        ),
        numbers(
            About(68, "GPU records lost", "short", 6, 4, NO_GPU),
            "Records of GPU work that were lost over the time shown: GPU time is more than what is shown.",
            Query(total(gain(select("dask_efficiency_gpu_records_dropped_total"))), "records"),
            steps=((None, GOOD_COLOUR), (1, FAIR_COLOUR)),
            decimals=0,
        ),
    ]


def of_workers() -> list[Any]:
    """What the GPUs of the chosen workers did."""

    def of(grow: Growth, *matchers: str) -> str:
        return total(grow(select(WORKER_GPU_SECONDS, *matchers, chosen=CHOSEN_WORKERS.chosen)), by=f"{WORKER}, uuid")

    idle = ratio(of(gain, 'activity="idle"'), of(gain))
    return [
        lines(
            About(60, "GPU kernels, by worker", "percentunit", 12, 8, NO_GPU),
            "Share of the time in which at least one kernel of the worker ran, by worker and GPU.",
            Query(ratio(of(rate, 'activity="kernels"'), of(rate)), "{{worker}} {{uuid}}"),
            limit=1,
        ),
        bars(
            About(61, f"The {MAX_BARS} GPUs that are idle most", "percentunit", 12, 8, NO_GPU),
            "Share of the time shown in which a GPU ran no kernel of its worker and copied nothing for it. Click a "
            "bar for the worker.",
            Query(f"topk({MAX_BARS}, {idle})", "{{worker}} {{uuid}}"),
            colour=COLOURS[Bucket.IDLE],
            limit=1,
            link=("Show this worker", TO_ONE_WORKER),
        ),
    ]


def _reading(name: str) -> str:
    """A sensor's reading by GPU, once for each however many workers use it."""
    return f"max by (cluster, job, instance, uuid) ({select(f'dask_efficiency_gpu_{name}')})"
