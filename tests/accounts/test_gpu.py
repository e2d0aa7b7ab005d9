from hypothesis import given

from dask_efficiency.accounts.gpu import MAX_KERNELS, DeviceTotals, GpuTotals, KernelTotals, add_totals
from dask_efficiency.accounts.rows import OTHER
from tests.strategies import any_gpu_totals


def adds_up(device: DeviceTotals) -> bool:
    used = device.kernels + device.copies
    parts = [*device.shares.values(), device.unattributed]
    return used + device.idle == device.elapsed and sum(parts) == used and min(parts) >= 0


@given(any_gpu_totals(), any_gpu_totals())
def test_a_sum_adds_up_and_its_growth_is_the_addend(before, more):
    after = add_totals(before, more)
    assert all(map(adds_up, after.devices))
    gained = after.since(before)
    assert all(map(adds_up, gained.devices))
    time = {device.uuid: (device.kernels, device.copies, device.idle) for device in gained.devices if device.elapsed}
    assert time == {d.uuid: (d.kernels, d.copies, d.idle) for d in more.devices if d.elapsed}
    assert (gained.kernel_ns, gained.gaps, gained.unknown_tasks) == (more.kernel_ns, more.gaps, more.unknown_tasks)
    assert {p: ns for p, ns in gained.hidden.items() if ns} == {p: ns for p, ns in more.hidden.items() if ns}


def test_kernels_beyond_a_bound_are_one():
    many = GpuTotals("cupti", kernels=tuple(KernelTotals("train", f"k{i}", 1, 1000 - i) for i in range(80)))
    more = GpuTotals("cupti", kernels=tuple(KernelTotals("train", f"m{i}", 2, 10) for i in range(40)))
    kernels = add_totals(many, more).kernels
    assert len(kernels) == MAX_KERNELS + 1
    assert kernels[-1] == KernelTotals("", OTHER, 40, 200)
    assert sum(kernel.launches for kernel in kernels) == 80 + 2 * 40


def test_a_meter_that_was_refused_later_hides_no_measurement():
    measured = GpuTotals("cupti", "CUPTI 13", kernel_ns=5)
    found = add_totals(measured, GpuTotals("none", "Nsight is attached"))
    assert (found.meter, found.description, found.kernel_ns) == ("cupti", "CUPTI 13", 5)
    assert add_totals(GpuTotals("none", "why"), measured).meter == "cupti"
