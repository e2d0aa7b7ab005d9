import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, KernelTotals
from dask_efficiency.report.files import to_dict
from dask_efficiency.report.gpu import GpuSummary, offload_efficiency, plain, summary, waiting_seconds
from tests.report.samples import SECOND, gpu_totals, report_of, seconds, with_gpus
from tests.strategies import any_gpu_totals

workers = st.dictionaries(st.text(max_size=5), any_gpu_totals(), max_size=4)


def of(**by_worker: GpuTotals) -> GpuSummary:
    found = summary(by_worker)
    assert found is not None
    return found


def device(uuid: str, kernels: int, copies: int, idle: int, **fields: object) -> GpuTotals:
    totals = DeviceTotals(uuid, "", kernels + copies + idle, kernels, copies, idle, unattributed=kernels + copies)
    return gpu_totals(devices=(replace(totals, **fields),))  # type: ignore[arg-type]


def test_a_gpu_or_a_refusal_makes_a_summary() -> None:
    assert summary({}) is None
    assert summary({"a": GpuTotals()}) is None
    assert of(a=GpuTotals(description="CUDA 11.8 is too old")).refused == {"CUDA 11.8 is too old": ("a",)}
    # the time that a meter saw before it failed counts
    found = of(a=replace(device("x", 4, 0, 6), meter="none", description="CUPTI failed"))
    assert (found.elapsed, found.meters, found.refused) == (10, {}, {"CUPTI failed": ("a",)})


def test_the_factors_by_hand() -> None:
    # kernels 40 and 20 s of 100 s, kernels and copies 50 and 20 s: 30 / 40, 40 / 50, 50 / 100
    found = of(a=device("x", 40, 10, 50), b=device("y", 20, 0, 80))
    assert found.factors == pytest.approx({"load balance": 0.75, "communication": 0.8, "orchestration": 0.5})
    assert found.parallel_efficiency == pytest.approx(0.3)
    # One that was watched for less time counts for less: it ran kernels all of its 10 s, the other for 10 of 90 s. The
    # mean is 20 of 100 s, the largest share is 1.
    found = of(a=device("x", 10, 0, 0), b=device("y", 10, 0, 80))
    assert found.factors == pytest.approx({"load balance": 0.2, "communication": 1, "orchestration": 1})
    # devices that only copied are not out of balance
    assert of(a=device("x", 0, 5, 5)).factors == {"load balance": 1.0, "communication": 0.0, "orchestration": 0.5}


@given(workers)
def test_the_factors_are_shares_and_their_product_is_the_parallel_efficiency(by_worker: dict[str, GpuTotals]) -> None:
    found = summary(by_worker)
    if found is None or not found.elapsed:
        assert found is None or not found.factors
        return
    assert all(0 <= factor <= 1 for factor in found.factors.values())
    assert math.prod(found.factors.values()) == pytest.approx(found.parallel_efficiency, rel=1e-9)


@given(workers)
def test_nothing_is_lost_in_the_summary(by_worker: dict[str, GpuTotals]) -> None:
    found = summary(by_worker)
    measured = [totals for totals in by_worker.values() if totals.meter != "none" or totals.devices]
    if found is None:
        assert not measured
        return
    assert sum(found.activity[name] for name in GPU_ACTIVITIES) == found.elapsed
    watched = [device.totals for device in found.devices]
    assert found.unattributed + sum(found.shares.values()) == sum(row.kernels + row.copies for row in watched)
    assert sum(kernel.ns for kernel in found.kernels) == sum(row.ns for totals in measured for row in totals.kernels)
    data = to_dict(report_of(gpu=by_worker))["head"]["gpu"]
    assert json.loads(json.dumps(data, allow_nan=False))["elapsed_ns"] == plain(found)["elapsed_ns"] == found.elapsed


def test_a_gpu_of_two_workers_is_flagged_and_in_no_sum() -> None:
    found = of(a=device("x", 4, 0, 6), b=device("x", 5, 0, 5), c=device("y", 1, 0, 9))
    assert [(row.worker, row.shared) for row in found.devices] == [("a", True), ("b", True), ("c", False)]
    assert (found.elapsed, found.activity["kernels"]) == (10, 1)
    assert found.factors == pytest.approx({"load balance": 1.0, "communication": 1.0, "orchestration": 0.1})
    assert math.isnan(of(a=device("x", 4, 0, 6), b=device("x", 5, 0, 5)).parallel_efficiency)
    # without any time, a device is left out
    assert of(a=device("x", 0, 0, 0)).devices == ()


def test_kernels_of_a_name_and_prefix_are_added_up_over_the_workers() -> None:
    found = summary(with_gpus().gpu)
    assert found is not None
    kernels = [(1500, 5 * SECOND), (500, 600_000_000), (20, 400_000_000)]
    assert [(row.launches, row.ns) for row in found.kernels] == kernels
    # the row of others comes last whatever its size
    rows = (KernelTotals("p", "(other)", 9, 900), KernelTotals("", "(other)", 1, 100), KernelTotals("p", "k", 1, 1))
    named, others = of(a=gpu_totals(kernels=rows)).kernels
    assert (named.name, others.name, others.ns) == ("k", "(other)", 1000)


def test_a_gpu_is_called_by_its_model_and_the_beginning_of_its_uuid() -> None:
    assert of(a=gpu_totals("GPU-1f0c2d34-aaaa-bbbb")).devices[0].label == "H100 80GB HBM3 GPU-1f0c2d34"
    for uuid, label in (("MIG-41b36d12-5b5e", "MIG-41b36d12"), ("no uuid", "no uuid"), ("GPU-x-y", "GPU-x")):
        assert of(a=device(uuid, 1, 0, 0)).devices[0].label == label


def test_the_device_offload_efficiency_by_hand() -> None:
    # 6 s of CPU, 3 s for kernels of their own, 1 s for nothing
    whole = seconds(thread_cpu=6, gpu=3, idle=5)
    assert offload_efficiency(whole, {"thread-noncpu: GPU wait": 1.0, "thread-noncpu: disk": 9.0}) == 0.6
    assert math.isnan(offload_efficiency(seconds(idle=1), {}))
    details = {f"thread-noncpu: GPU {what}": 1.0 for what in ("wait", "contention", "copies", "else")}
    assert waiting_seconds(details) == 3.0
