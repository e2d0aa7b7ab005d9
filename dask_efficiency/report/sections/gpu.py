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
from dask_efficiency.show.columns import TypedColumn, as_table, counts, names, seconds
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
    FEW_ROWS,
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
        _by_prefix(found, extent),
        _upper_bounds(found, extent),
        _kernels(found, extent),
    )


def _devices(report: EfficiencyReport, found: GpuSummary, extent: Extent) -> list[Block]:
    shown: Sequence[DeviceTime] = found.devices
    few, whole = "", section("")
    if len(shown) > SCREEN.gpus:
        shown = sorted(shown, key=_share_of_kernels)
    if len(shown) > extent.gpus:
        low, middle, high = (format_share(f(map(_share_of_kernels, shown))) for f in (min, median, max))
        few = f"share of kernels: min {low}, median {middle}, max {high}; "
        few += f"the {FEW_ROWS} of {len(shown)} with the smallest share of kernels:"
        if extent.drawn and len(shown) <= MAX_ROWS:
            everything = _device_table(shown, sortable=True)
            whole = section(f"All {len(shown)} GPUs", everything, folded=True)
        shown = shown[:FEW_ROWS]
    sentences, efficiencies, meters = _sentences(report, found), _efficiencies(report, found), _meters(found)
    if not extent.drawn:
        return [*sentences, *efficiencies, meters, few, _device_table(shown)]
    drawings = tuple(Stack(_slices(device.activity, device.totals.elapsed), device.totals.elapsed) for device in shown)
    table = _device_table(shown, drawings, sortable=True)
    return [*sentences, _legend(found), few, table, whole, *efficiencies, Aside(meters)]


def _device_table(shown: Sequence[DeviceTime], drawings: tuple[Stack, ...] = (), *, sortable: bool = False) -> Table:
    heads = ("GPU", "worker", *(f"{name} %" for name in GPU_ACTIVITIES), "watched")
    return Table(heads, tuple(map(_device_row, shown)), words=(0, 1), drawings=drawings, sortable=sortable)


def _activity_label(name: str) -> Label:
    return Label(name, GPU_COLOURS[name], MEANINGS[name])


def _percent(ns: int, whole: int) -> str:
    return format_percent(round(1000 * ns / whole))


def _slices(activity: Mapping[str, int], whole: int) -> tuple[Slice, ...]:
    return tuple(Slice(_activity_label(name), ns, _percent(ns, whole)) for name, ns in activity.items())


def _legend(found: GpuSummary) -> Legend:
    # GPUs shared by workers have no sum
    tenths = apportion(list(found.activity.values()), 1000) if found.elapsed else []
    figures = [f"{format_percent(tenth)} %" for tenth in tenths] or [""] * len(found.activity)
    labels = map(_activity_label, found.activity)
    return Legend(tuple(zip(labels, figures, strict=True)) if found.devices else ())


def _share_of_kernels(device: DeviceTime) -> float:
    return device.totals.kernels / device.totals.elapsed


def _device_row(device: DeviceTime) -> tuple[str, ...]:
    tenths = apportion(list(device.activity.values()), 1000)
    watched = format_seconds(device.totals.elapsed / 1e9)
    worker = name_of(device.worker) + " (shared)" * device.shared
    return name_of(device.label), worker, *map(format_percent, tenths), watched


def _sentences(report: EfficiencyReport, found: GpuSummary) -> list[str]:
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


def _efficiencies(report: EfficiencyReport, found: GpuSummary) -> list[str]:
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


def _meters(found: GpuSummary) -> str:
    lines = []
    for (_, description), workers in found.meters.items():
        on = f" on {len(workers)} workers" if len(found.meters) > 1 or found.refused else ""
        lines.append(f"measured by {sentence(description)}{on}")
    if not math.isnan(found.coverage):
        lines.append(f"{format_share(found.coverage)} of the kernel time was attributed to tasks")
    if found.cost:
        lines.append(f"the meter took {format_seconds(found.cost / 1e9)} of CPU")
    return "; ".join(lines)


def _by_prefix(found: GpuSummary, extent: Extent) -> Section:
    """GPU time by task prefix; rows add up to all kernels and copies."""
    labels = labelled(list(found.shares), "prefix", "prefixes", extent.prefixes)
    shares = {label: sum(found.shares[name] for name in names) for label, names in labels.items()}
    if found.unattributed:
        shares[NO_TASK] = found.unattributed
    whole = sum(shares.values())
    if not whole:
        return section("")
    scale = time_scale(whole / 1e9)
    steps = apportion(list(shares.values()), scale.steps(whole / 1e9))
    tenths = apportion(list(shares.values()), 1000)
    rows = zip(shares, map(scale.text, steps), map(format_percent, tenths), strict=True)
    lines = ["where several tasks use a GPU at once, each has an equal share of that time"]
    if len(found.own) < len(found.devices):
        lines.append("what several workers ran at once on a GPU that they share counts for each")
    largest = max(shares.values())
    colours = {label: GPU_COLOURS["idle" if label == NO_TASK else "kernels"] for label in shares}
    bars = (
        Stack((Slice(Label(label, colours[label]), ns, _percent(ns, largest)),), largest)
        for label, ns in shares.items()
    )
    heads, drawings = ("prefix", f"GPU-{scale.unit}", "%"), tuple(bars) if extent.drawn else ()
    table = Table(heads, tuple(rows), drawings=drawings, sortable=extent.drawn)
    return section("GPU time by prefix", *_explained(lines, extent), table)


def _explained(lines: Sequence[str], extent: Extent) -> Sequence[str | Aside]:
    return list(map(Aside, lines)) if extent.drawn else lines


def _upper_bounds(found: GpuSummary, extent: Extent) -> Section:
    """Upper bounds of GPU time by prefix, from meters that see no kernels."""
    if not found.bounds:
        return section("")
    rows = tuple((name_of(name), format_seconds(ns / 1e9)) for name, ns in [*found.bounds.items()][: SCREEN.prefixes])
    lines = ("between the first and the last work that a task gave to the GPU: an upper bound of its GPU time",)
    return section("GPU time by prefix, at most", *_explained(lines, extent), Table(("prefix", "time"), rows))


def _kernels(found: GpuSummary, extent: Extent) -> Section:
    if not (shown := list(found.kernels)):
        return section("")
    if rest := shown[extent.kernels - 1 :] if len(shown) > extent.kernels else []:
        launches, ns = sum(kernel.launches for kernel in rest), sum(kernel.ns for kernel in rest)
        shown[extent.kernels - 1 :] = [KernelTotals("", OTHER_KERNELS, launches, ns)]
    columns = {
        "kernel": names(shown, text=lambda kernel: _kernel_label(kernel, extent.kernel_name)),
        "prefix": names(each.prefix or ("" if each.name == OTHER_KERNELS else NO_TASK) for each in shown),
        "launches": counts(each.launches for each in shown),
        "{}": seconds((each.ns / 1e9 for each in shown), time_scale(found.kernel_ns / 1e9)),
        "%": TypedColumn(_percent(each.ns, found.kernel_ns) if found.kernel_ns else "" for each in shown),
        "mean": TypedColumn(short_time(each.ns / each.launches) if each.launches else "" for each in shown),
    }
    lines = ("durations are added up, so kernels that run at once may sum to more than the GPU's time",)
    return section("GPU kernels by time", *_explained(lines, extent), as_table(columns, sortable=extent.drawn))


def _kernel_label(kernel: KernelTotals, length: int) -> Label:
    short = shorten(harmless(kernel_name(kernel.name)), length) or "(no name)"
    hint = shorten(harmless(kernel.name[:WHOLE_NAME]), WHOLE_NAME)
    return Label("(other kernels)" if kernel.name == OTHER_KERNELS else short, hint=hint)


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
        workers = f"worker {named(bounded)}" if len(bounded) == 1 else f"{len(bounded)} workers: {named(bounded)}"
        lines.append(f"GPU time is an upper bound on {workers}: its meter sees tasks and no kernels")
    count = max(len(report.by_worker), len(report.gpu))
    for reason, refused in found.refused.items():
        of_all = "" if count == 1 else f" on {len(refused)} of {count} workers ({named(refused)})"
        lines.append(f"GPU time was not measured{of_all}: {sentence(reason)}")
    shared: dict[str, list[str]] = {}
    for device in found.devices:
        if device.shared:
            shared.setdefault(name_of(device.label), []).append(device.worker)
    for uuid, users in shared.items():
        lines.append(
            f"GPU {uuid} was used by several workers ({named(users)}): each sees its own work only, "
            "so their times are not added up"
        )
    share, gaps, late = format_share(1 - found.coverage), *(format_seconds(ns / 1e9) for ns in (found.gaps, found.late))
    as_others = "their waiting for it counts as thread-noncpu or thread-cpu"
    caveats = (
        (found.coverage < GOOD_COVERAGE, f"{share} of the kernel time could not be attributed to tasks"),
        (
            found.unknown_tasks,
            f"{found.unknown_tasks} tasks were booked before their use of the GPU was known: {as_others}",
        ),
        (found.dropped, f"{found.dropped} records of GPU work were lost: GPU time is more than shown"),
        (found.gaps, f"The meter gave way to a profiler for {gaps}: GPU work of that time is not seen"),
        (found.late, f"{late} of GPU work became known too late, and counts as idle"),
    )
    return *lines, *(text for holds, text in caveats if holds)
