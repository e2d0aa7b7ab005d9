"""Section on a report's GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from dask_efficiency.accounts.gpu import KernelTotals
from dask_efficiency.report.gpu import (
    MEANINGS,
    OTHER_KERNELS,
    DeviceTime,
    GpuSummary,
    offload_efficiency,
    summary,
    waiting_seconds,
)
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.document import (
    MAX_ROWS,
    SCREEN,
    Aside,
    Block,
    Extent,
    Label,
    Legend,
    Section,
    Slice,
    Stack,
    Table,
    section,
)
from dask_efficiency.show.drawn_buckets import GPU_COLOURS
from dask_efficiency.show.figures import (
    apportion,
    format_percent,
    format_seconds,
    format_share,
    format_thread_time,
    harmless,
    kernel_name,
    labelled,
    name_of,
    named,
    sentence,
    shorten,
    time_scale,
)

#: GPUs listed if there is no room for all: those with the smallest share of kernels. By eye.
MIN_BUSY = 5

#: Advice for a poor factor of the devices' efficiency.
ADVICE = {
    "load balance": "some GPUs have more work than others: smaller partitions, or as many tasks for each",
    "communication": "GPUs wait for copies: keep data there, copy from pinned memory, and while kernels run",
    "orchestration": "even the busiest GPU often has nothing to do: larger batches, read ahead, more tasks at once",
}

#: Coverage below which a note gives the kernel time without a known task. By judgement.
GOOD_COVERAGE = 0.99

#: Lowest good factor, as defined by POP.
GOOD_FACTOR = 0.8

#: Characters of a kernel's full name, shown as a hint. A guess.
WHOLE_NAME = 1000

#: Label of device time without a known task.
NO_TASK = "(no task)"


def gpus(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """GPUs, their time by prefix, and their kernels; empty if no GPU was watched."""
    found = summary(report.gpu)
    if found is None or not (found.meters or found.devices):
        return Section("GPUs")
    return section(
        "GPUs",
        *_devices(report, found, extent),
        by_prefix(found, extent),
        upper_bounds(found, extent),
        kernels(found, extent),
    )


def _devices(report: EfficiencyReport, found: GpuSummary, extent: Extent) -> list[Block]:
    """Activity of the GPUs, the efficiencies, and each GPU's time."""
    shown = busiest_last(found)
    few, whole = "", section("")
    if len(shown) > extent.gpus:
        few = f"{_spread(found)}; the {MIN_BUSY} of {len(shown)} with the smallest share of kernels:"
        if extent.drawn and len(shown) <= MAX_ROWS:
            everything = _device_table(shown, sortable=True)
            whole = section(f"All {len(shown)} GPUs", everything, folded=True)
        shown = shown[:MIN_BUSY]
    lines = [*sentences(report, found), *efficiencies(report, found)]
    if not extent.drawn:
        return [*lines, *meters(found), few, _device_table(shown)]
    drawings = tuple(Stack(_slices(device.activity, device.totals.elapsed), device.totals.elapsed) for device in shown)
    table = _device_table(shown, drawings, sortable=True)
    asides = map(Aside, meters(found))
    return [*sentences(report, found), _legend(found), few, table, whole, *efficiencies(report, found), *asides]


def _device_table(shown: Sequence[DeviceTime], drawings: tuple[Stack, ...] = (), *, sortable: bool = False) -> Table:
    heads = ("GPU", "worker", *(f"{name} %" for name in GPU_ACTIVITIES), "watched")
    return Table(heads, tuple(map(_device_row, shown)), words=(0, 1), drawings=drawings, sortable=sortable)


def _slices(activity: Mapping[str, int], whole: int) -> tuple[Slice, ...]:
    return tuple(
        Slice(Label(name, GPU_COLOURS[name], MEANINGS[name]), ns, format_percent(round(1000 * ns / whole)))
        for name, ns in activity.items()
    )


def _legend(found: GpuSummary) -> Legend:
    # GPUs shared by workers have no sum
    tenths = apportion(list(found.activity.values()), 1000) if found.elapsed else []
    figures = [f"{format_percent(tenth)} %" for tenth in tenths] or [""] * len(found.activity)
    labels = [Label(name, GPU_COLOURS[name], MEANINGS[name]) for name in found.activity]
    return Legend(tuple(zip(labels, figures, strict=True)) if found.devices else ())


def busiest_last(found: GpuSummary) -> list[DeviceTime]:
    """Devices by share of kernels, the smallest first; if there are few, in the order of the workers."""
    if len(found.devices) <= SCREEN.gpus:
        return list(found.devices)
    return sorted(found.devices, key=lambda device: device.totals.kernels / device.totals.elapsed)


def _spread(found: GpuSummary) -> str:
    shares = [device.totals.kernels / device.totals.elapsed for device in found.devices]
    low, middle, high = (format_share(f(shares)) for f in (min, median, max))
    return f"share of kernels: min {low}, median {middle}, max {high}"


def _device_row(device: DeviceTime) -> tuple[str, ...]:
    tenths = apportion(list(device.activity.values()), 1000)
    watched = format_seconds(device.totals.elapsed / 1e9)
    worker = name_of(device.worker) + " (shared)" * device.shared
    return name_of(device.label), worker, *map(format_percent, tenths), watched


def sentences(report: EfficiencyReport, found: GpuSummary) -> list[str]:
    """Sentences on the activity of all GPUs, and on the tasks' waiting for them."""
    lines = []
    if found.elapsed:
        shares = {name: format_share(share) for name, share in found.shares_of_time.items()}
        number = len({device.totals.uuid for device in found.own})
        lines.append(
            f"kernels ran {shares['kernels']} of the time, copies alone {shares['copies']}, and "
            f"{'the GPU was' if number == 1 else f'the {number} GPUs were'} idle {shares['idle']}"
        )
    waited = round(1e9 * waiting_seconds(report.details))
    own = report.breakdown.ns(Bucket.GPU)
    if own or waited:
        lines.append(
            f"tasks waited for {format_thread_time(own)} while kernels of their own ran (gpu), and for "
            f"{format_thread_time(waited)} while none did"
        )
    parts = []
    if hidden := sum(found.hidden.values()):
        parts.append(f"{format_seconds(hidden / 1e9)} ran while the thread of its task did something else")
    if found.tail:
        parts.append(f"{format_seconds(found.tail / 1e9)} ran after its task had ended")
    if parts:
        lines.append(f"of the work on the GPU{'s' * (len(found.devices) > 1)}, {', and '.join(parts)}")
    return lines


def efficiencies(report: EfficiencyReport, found: GpuSummary) -> list[str]:
    """TALP's efficiencies, and advice for poor factors."""
    lines = []
    offload = offload_efficiency(report.breakdown, report.details)
    if found.factors:
        product = " x ".join(f"{name} {factor:.3f}" for name, factor in found.factors.items())
        lines.append(f"device parallel efficiency {found.parallel_efficiency:.3f} = {product}")
    if offload < 1:
        lines.append(
            f"device offload efficiency {offload:.3f}: the part of computing time in which tasks did not wait for GPUs"
        )
    lines += [f"{name}: {ADVICE[name]}" for name, factor in found.factors.items() if factor < GOOD_FACTOR]
    return lines


def meters(found: GpuSummary) -> list[str]:
    """Meters, their coverage and their cost."""
    lines = []
    for (_, description), workers in found.meters.items():
        on = f" on {len(workers)} workers" if len(found.meters) > 1 or found.refused else ""
        lines.append(f"measured by {sentence(description)}{on}")
    if not math.isnan(found.coverage):
        lines.append(f"{format_share(found.coverage)} of the kernel time was attributed to tasks")
    if found.cost:
        lines.append(f"the meter took {format_seconds(found.cost / 1e9)} of CPU")
    return ["; ".join(lines)] if lines else []


def by_prefix(found: GpuSummary, extent: Extent = SCREEN) -> Section:
    """GPU time by task prefix; rows add up to all kernels and copies."""
    heading = "GPU time by prefix"
    shares = prefix_shares(found, extent.prefixes)
    whole = sum(shares.values())
    if not whole:
        return Section(heading)
    scale = time_scale(whole / 1e9)
    steps = apportion(list(shares.values()), scale.steps(whole / 1e9))
    tenths = apportion(list(shares.values()), 1000)
    rows = tuple(
        (label, scale.text(step), format_percent(tenth))
        for label, step, tenth in zip(shares, steps, tenths, strict=True)
    )
    lines = ["where several tasks use a GPU at once, each has an equal share of that time"]
    if len(found.own) < len(found.devices):
        lines.append("what several workers ran at once on a GPU that they share counts for each")
    bars = _prefix_bars(shares) if extent.drawn else ()
    table = Table(("prefix", f"GPU-{scale.unit}", "%"), rows, drawings=bars, sortable=extent.drawn)
    return section(heading, *_explained(lines, extent), table)


def _prefix_bars(shares: Mapping[str, int]) -> tuple[Stack, ...]:
    largest = max(shares.values())
    return tuple(
        Stack(
            (
                Slice(
                    Label(label, GPU_COLOURS["idle" if label == NO_TASK else "kernels"]),
                    ns,
                    format_percent(round(1000 * ns / largest)),
                ),
            ),
            largest,
        )
        for label, ns in shares.items()
    )


def _explained(lines: Sequence[str], extent: Extent) -> Sequence[str | Aside]:
    """Explanations of a table, less prominent on a page."""
    return list(map(Aside, lines)) if extent.drawn else lines


def prefix_shares(found: GpuSummary, at_most: int) -> dict[str, int]:
    """Nanoseconds of GPU time by label: prefixes, the other prefixes as one, and time without a known task."""
    labels = labelled(list(found.shares), "prefix", "prefixes", at_most)
    shares = {label: sum(found.shares[name] for name in names) for label, names in labels.items()}
    return shares | ({NO_TASK: found.unattributed} if found.unattributed else {})


def upper_bounds(found: GpuSummary, extent: Extent = SCREEN) -> Section:
    """Upper bounds of GPU time by prefix, from meters that see no kernels."""
    heading = "GPU time by prefix, at most"
    bounds = list(found.bounds.items())[: SCREEN.prefixes]
    if not bounds:
        return Section(heading)
    rows = tuple((name_of(name), format_seconds(ns / 1e9)) for name, ns in bounds)
    lines = ("between the first and the last work that a task gave to the GPU: an upper bound of its GPU time",)
    return section(heading, *_explained(lines, extent), Table(("prefix", "time"), rows))


def kernels(found: GpuSummary, extent: Extent = SCREEN) -> Section:
    """Kernels with most time, by prefix."""
    heading = "GPU kernels by time"
    shown = top_kernels(found, extent.kernels)
    if not shown:
        return Section(heading)
    scale = time_scale(found.kernel_ns / 1e9)
    rows = tuple(
        (
            Label(
                kernel_label(kernel, extent.kernel_name), hint=shorten(harmless(kernel.name[:WHOLE_NAME]), WHOLE_NAME)
            ),
            name_of(kernel.prefix) or ("" if kernel.name == OTHER_KERNELS else NO_TASK),
            str(kernel.launches),
            scale.figure(kernel.ns / 1e9),
            format_percent(round(1000 * kernel.ns / found.kernel_ns)) if found.kernel_ns else "",
            short_time(kernel.ns / kernel.launches) if kernel.launches else "",
        )
        for kernel in shown
    )
    heads = ("kernel", "prefix", "launches", scale.unit, "%", "mean")
    lines = ("durations are added up, so kernels that run at once may sum to more than the GPU's time",)
    return section(heading, *_explained(lines, extent), Table(heads, rows, words=(0, 1), sortable=extent.drawn))


def top_kernels(found: GpuSummary, at_most: int) -> Sequence[KernelTotals]:
    """First kernels, and all others as one."""
    if len(found.kernels) <= at_most:
        return found.kernels
    rest = found.kernels[at_most - 1 :]
    launches, ns = sum(kernel.launches for kernel in rest), sum(kernel.ns for kernel in rest)
    return (*found.kernels[: at_most - 1], KernelTotals("", OTHER_KERNELS, launches, ns))


def kernel_label(kernel: KernelTotals, length: int) -> str:
    """Name of a kernel for display: short, harmless and bounded."""
    if kernel.name == OTHER_KERNELS:
        return "(other kernels)"
    return shorten(harmless(kernel_name(kernel.name)), length) or "(no name)"


def short_time(ns: float) -> str:
    """Duration of a kernel: ``"3.4 us"``."""
    return f"{ns / 1e3:.1f} us" if ns < 999_500 else format_seconds(ns / 1e9)


def gpu_notes(report: EfficiencyReport) -> tuple[str, ...]:
    """Caveats of the figures of GPUs, a sentence each."""
    found = summary(report.gpu)
    if found is None:
        return ()
    lines = []
    bounded = [name for (kind, _), names in found.meters.items() if kind == "torch-events" for name in names]
    if bounded:
        lines.append(f"GPU time is an upper bound on {_workers_text(bounded)}: its meter sees tasks and no kernels")
    workers = max(len(report.by_worker), len(report.gpu))
    for reason, names in found.refused.items():
        of_all = "" if workers == 1 else f" on {len(names)} of {workers} workers ({named(names)})"
        lines.append(f"GPU time was not measured{of_all}: {sentence(reason)}")
    for uuid, users in _shared(found).items():
        lines.append(
            f"GPU {uuid} was used by several workers ({named(users)}): each sees its own work only, "
            "so their times are not added up"
        )
    if found.coverage < GOOD_COVERAGE:
        lines.append(f"{format_share(1 - found.coverage)} of the kernel time could not be attributed to tasks")
    if found.unknown_tasks:
        lines.append(
            f"{found.unknown_tasks} tasks were booked before their use of the GPU was known: "
            "their waiting for it counts as thread-noncpu or thread-cpu"
        )
    if found.dropped:
        lines.append(f"{found.dropped} records of GPU work were lost: GPU time is more than shown")
    if found.gaps:
        lines.append(
            f"The meter gave way to a profiler for {format_seconds(found.gaps / 1e9)}: "
            "GPU work of that time is not seen"
        )
    if found.late:
        lines.append(f"{format_seconds(found.late / 1e9)} of GPU work became known too late, and counts as idle")
    return tuple(lines)


def _workers_text(workers: Sequence[str]) -> str:
    return f"{'worker' if len(workers) == 1 else f'{len(workers)} workers:'} {named(list(workers))}"


def _shared(found: GpuSummary) -> dict[str, list[str]]:
    users: dict[str, list[str]] = {}
    for device in found.devices:
        if device.shared:
            users.setdefault(name_of(device.label), []).append(device.worker)
    return users
