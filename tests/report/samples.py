"""Reports for the tests: one worked out by hand, and any report at all."""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import CAUSE_NAMES, CAUSES, Breakdown, Bucket, causes_of, fit_known_causes
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.memory_timeline import MemoryLine, MemoryTimeline
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.accounts.facts import AMOUNTS, DETAILS, OUTSIDE, Facts, FactsBuilder, add_extras, parents
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, KernelTotals
from dask_efficiency.accounts.lines import Frame, Stack
from dask_efficiency.accounts.metered import (
    AT_PEAK,
    BYTE_SECONDS,
    BYTES,
    COUNT,
    EXECUTE,
    IN_MEMORY,
    MEMORY,
    P2P,
    PROCESS,
    SECONDS,
    WAYS,
)
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.report.values import DASK_ACTIVITIES, OWN_ACTIVITIES, PHASES, Amount, ClientRow, MeteredRow, Saved
from dask_efficiency.runs.trace.run_trace import RunTrace
from tests.strategies import any_gpu_totals

SECOND = 1_000_000_000

MODEL = "NVIDIA H100 80GB HBM3"
KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)


def seconds(**by_bucket: float) -> Breakdown:
    """``seconds(thread_cpu=1.5)``."""
    return Breakdown({name.replace("_", "-"): round(value * 1e9) for name, value in by_bucket.items()})


def causes(**by_cause: float) -> dict[str, int]:
    """``causes(**{"thread-noncpu/gil": 1.5})``, in nanoseconds."""
    return {name: round(value * 1e9) for name, value in by_cause.items()}


def waiting_for_the_gil(**fields: Any) -> EfficiencyReport:
    """Two workers with four threads each, for 11 s: 88 thread-seconds, of which 34 are useful and 54 lost.

    ``gil`` is 8.2 + 9.0 = 17.2 of the 23 of ``thread-noncpu``, and ``parallelism`` 11 + 6 = 17 of the 28 of ``idle``.
    """
    given: dict[str, Any] = {
        "name": "etl",
        "window_seconds": 11.0,
        "cluster_seconds": 11.0,
        "nthreads": {"a": 4, "b": 4},
        "cores": 4.0,
        "by_worker": {
            "a": seconds(thread_cpu=14, library_threads=2, thread_noncpu=12, overhead=2, idle=14),
            "b": seconds(thread_cpu=15, library_threads=3, thread_noncpu=11, overhead=1, idle=14),
        },
        "causes_by_worker": {
            "a": causes(
                **{"thread-noncpu/gil": 8.2, "thread-noncpu/core": 1.1, "thread-noncpu/file": 2.2},
                **{"thread-noncpu/lock": 0.2, "thread-noncpu/sleep": 0.1, "thread-noncpu/unknown": 0.2},
                **{"overhead/event-loop": 1.4, "overhead/hand-over": 0.5, "overhead/unknown": 0.1},
                **{"idle/parallelism": 11, "idle/scheduler": 3},
            ),
            "b": causes(
                **{"thread-noncpu/gil": 9.0, "thread-noncpu/core": 0.9, "thread-noncpu/file": 0.9},
                **{"thread-noncpu/unknown": 0.2, "overhead/event-loop": 1.0},
                **{"idle/parallelism": 6, "idle/imbalance": 8},
            ),
        },
        "by_prefix": {
            "clean": seconds(thread_cpu=20, thread_noncpu=20),
            "load": seconds(thread_cpu=9, library_threads=5, thread_noncpu=3, overhead=3),
        },
        "causes_by_prefix": {
            "clean": causes(**{"thread-noncpu/gil": 17.2, "thread-noncpu/core": 2.0, "thread-noncpu/lock": 0.8}),
            "load": causes(**{"thread-noncpu/file": 3.0}),
        },
        "tasks": {"succeeded": 120},
        "waited_for": {"clean": 12 * SECOND, "load": 5 * SECOND},
    }
    return report_of(**(given | fields))


#: Views of a report's facts, which tests give in their place.
VIEWS = (
    *("by_worker", "by_prefix", "by_span", "causes_by_worker", "causes_by_prefix", "causes_by_span"),
    *("outside", "details", "moved", "metered"),
)


_PARTS = {SECONDS: 1e9, BYTE_SECONDS: 1e3}


def facts_of(
    by_worker: Mapping[str, Breakdown],
    by_prefix: Mapping[str, Breakdown] | None = None,
    by_span: Mapping[str, Breakdown] | None = None,
    causes_by_worker: Mapping[str, Mapping[str, int]] | None = None,
    causes_by_prefix: Mapping[str, Mapping[str, int]] | None = None,
    causes_by_span: Mapping[str, Mapping[str, int]] | None = None,
    *,
    outside: Mapping[str, float] | None = None,
    details: Mapping[str, float] | None = None,
    moved: Mapping[str, Amount] | None = None,
    metered: Iterable[MeteredRow] = (),
) -> Facts:
    """Facts with these views; what is of which worker, prefix and span at once is not known."""
    builder = FactsBuilder()
    rows = {worker: row.to_nanoseconds() for worker, row in by_worker.items()}
    builder.append(Facts.of_views(rows, causes=causes_by_worker or {}))
    _tell(builder, "prefix", by_prefix or {}, causes_by_prefix or {})
    _tell(builder, "span", *(map(_without_inner, (by_span or {}, causes_by_span or {}))))
    seconds = {OUTSIDE: outside or {}, DETAILS: details or {}}
    add_extras(builder, {name: {label: round(s * 1e9) for label, s in row.items()} for name, row in seconds.items()})
    for way, amount in (moved or {}).items():
        for unit, value in ((BYTES, amount.nbytes), (COUNT, amount.count)):
            builder.add(value, bucket=AMOUNTS, label=way, unit=unit)
    for row in metered:
        names = {name: getattr(row, name) for name in ("worker", "span", "prefix", "label", "unit")}
        builder.add(round(row.value * _PARTS.get(row.unit, 1.0)), bucket=row.context, **names)
    return builder.build()


def _tell(builder: FactsBuilder, column: str, rows: Mapping[str, Mapping[str, Any]], causes: Mapping[str, Any]) -> None:
    known = {bucket for bucket in CAUSES if any(causes_of(row, bucket) for row in causes.values())}
    for name, row in rows.items():
        ns = row.to_nanoseconds() if isinstance(row, Breakdown) else dict(row)
        fitted = fit_known_causes(causes.get(name, {}), ns, known)
        explained = {each.partition("/")[0] for each in fitted}
        for each, value in [*((b, n) for b, n in ns.items() if b not in explained), *fitted.items()]:
            bucket, _, cause = each.partition("/")
            builder.move(value, {"bucket": bucket, "cause": cause}, **{column: name})


def _without_inner(rows: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Rows of spans without what is in the spans in them."""
    own = {path: row.to_nanoseconds() if isinstance(row, Breakdown) else dict(row) for path, row in rows.items()}
    for path, row in rows.items():
        outer = next((above for above in parents(path) if above in rows), None)
        if outer is not None:
            ns = row.to_nanoseconds() if isinstance(row, Breakdown) else row
            for name, n in ns.items():
                own[outer][name] = own[outer].get(name, 0) - n
    return own


def report_of(*workers: Breakdown, **fields: Any) -> EfficiencyReport:
    """A report over the workers given, named w0, w1, ...; its facts are given by :data:`VIEWS`."""
    given: dict[str, Any] = {"name": "a run", "started": 0.0, "window_seconds": 5.0, "cluster_seconds": 4.5}
    given["by_worker"] = {f"w{i}": worker for i, worker in enumerate(workers)}
    given |= fields
    if "facts" not in given:
        given["facts"] = facts_of(**{name: given[name] for name in VIEWS if name in given})
    return EfficiencyReport(**{name: value for name, value in given.items() if name not in VIEWS})


def changed(report: EfficiencyReport, **fields: Any) -> EfficiencyReport:
    """The report with other fields, or other :data:`VIEWS`."""
    if fields.keys() & set(VIEWS):
        fields["facts"] = facts_of(**{name: fields.get(name, getattr(report, name)) for name in VIEWS})
    return replace(report, **{name: value for name, value in fields.items() if name not in VIEWS})


def by_hand(**fields: Any) -> EfficiencyReport:
    """Two workers with two threads each, for five seconds: 20 thread-seconds.

    S = 20 - 2 (no-work) = 18, running 1, so 17 settled; U = 6 + 4 = 10; T = 4.5, N = 18 / 4.5 = 4,
    T* = 10 / 4 = 2.5.
    """
    given: dict[str, Any] = {
        "by_worker": {
            "a": seconds(thread_cpu=6, spill=3, idle=1),
            "b": seconds(thread_cpu=4, thread_noncpu=2, failed=1, no_work=2, running=1),
        },
        "by_prefix": {
            "load": seconds(thread_cpu=6, spill=3),
            "sum": seconds(thread_cpu=4, thread_noncpu=2, failed=1, running=1),
        },
        "phases": {"upload": 0.5, "run": 4.0},
        "tasks": {"succeeded": 12, "failed": 1},
        "nthreads": {"a": 2, "b": 2},
    }
    return report_of(**(given | fields))


def gpu_totals(uuid: str = "GPU-1f0c2d34-aaaa", **fields: Any) -> GpuTotals:
    """A worker that watched one GPU for 10 s: kernels for 4 s, copies for 1 s, idle for 5 s.

    Of the 5 s, ``train`` has 3.5 s, ``load`` 1 s and nobody 0.5 s; kernels of 3.6 s of 4 s are known to be a task's.
    """
    shares = {"train": 3_500_000_000, "load": SECOND}
    times = (10 * SECOND, 4 * SECOND, 1 * SECOND, 5 * SECOND)
    device = DeviceTotals(uuid, MODEL, *times, shares=shares, unattributed=500_000_000, tail=200_000_000)
    kernels = (
        KernelTotals("train", KERNEL, 1000, 3_000_000_000),
        KernelTotals("train", "triton_poi_fused_add_0", 500, 600_000_000),
        KernelTotals("", "(other)", 20, 400_000_000),
    )
    given: dict[str, Any] = {"meter": "cupti", "description": "CUPTI 13.0", "devices": (device,), "kernels": kernels}
    given |= {"hidden": {"train": 300_000_000}, "kernel_ns": 4 * SECOND, "attributed_ns": 3_600_000_000}
    return GpuTotals(**(given | {"cost": 50_000_000} | fields))


def with_gpus(**fields: Any) -> EfficiencyReport:
    """:func:`by_hand`'s two workers, with a GPU each: the second of half the kernels and no copies."""
    times = (10 * SECOND, 2 * SECOND, 0, 8 * SECOND)
    idle = DeviceTotals("GPU-77e1b0aa-bbbb", MODEL, *times, shares={"train": 2 * SECOND})
    kernels = (KernelTotals("train", KERNEL, 500, 2 * SECOND),)
    whole = {"kernel_ns": 2 * SECOND, "attributed_ns": 2 * SECOND, "hidden": {}, "cost": 0}
    second = gpu_totals(devices=(idle,), kernels=kernels, **whole)
    given: dict[str, Any] = {
        "by_worker": {
            "a": seconds(thread_cpu=3, gpu=3, spill=3, idle=1),
            "b": seconds(thread_cpu=3, gpu=1, thread_noncpu=2, failed=1, no_work=2, running=1),
        },
        "gpu": {"a": gpu_totals(), "b": second},
        "details": {"thread-noncpu: GPU wait": 1.0, "thread-noncpu: GPU copies": 0.5},
    }
    return by_hand(**(given | fields))


def skew(**fields: Any) -> Skew:
    """200 tasks of half a second, one of which took 21 s; for 19 s nothing else ran."""
    given: dict[str, Any] = {
        "count": 200,
        "median_seconds": 0.525,
        "p95_seconds": 0.61,
        "max_seconds": 21.0,
        "longest_key": "('join', 13)",
        "median_bytes": 2.0**20,
        "p95_bytes": 1.5 * 2**20,
        "max_bytes": 40.0 * 2**20,
        "largest_key": "('join', 13)",
        "alone_seconds": 19.0,
    }
    return Skew(**(given | fields))


#: Names that try to break out of a terminal, of rich's markup, of HTML or of a column.
HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\x1b[31mred\x1b[0m",
    "line\nbreak\r\ttab",
    "[bold]markup[/bold][/]",
    "\u202egnitirwer",
    "\ud800 lone surrogate",
    "x" * 100_000,
    "數據" * 60,
    "",
)

breakdowns = st.dictionaries(
    st.sampled_from([str(bucket) for bucket in Bucket]),
    st.integers(0, 10**15) | st.integers(0, 10**4) | st.sampled_from([0, 1, 333_333_333, 10**9]),
).map(Breakdown)

_names = st.text(max_size=12) | st.sampled_from(HOSTILE_NAMES[:7])
_some_name = _names.filter(bool)
_amounts = st.floats(0, 1e12)
_numbers = st.floats(-1e12, 1e12)


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Any timeline: of nothing, of one nanosecond, or of many bins."""
    empty = Timeline(draw(st.integers(1, 10**12)), 0, {})
    bins = draw(st.integers(0, 12))
    rest = draw(st.integers(1, empty.bin_ns))
    row = st.lists(st.integers(0, 10**15), min_size=bins, max_size=bins).map(tuple)
    rows = draw(st.dictionaries(st.sampled_from(ACTIVITIES), row))
    return replace(empty, elapsed_ns=(bins - 1) * empty.bin_ns + rest if bins else 0, activity=rows)


@st.composite
def memory_timelines(draw: st.DrawFn) -> MemoryTimeline:
    """Any memory over time, whose parts need not add up."""
    bins, width = draw(st.integers(0, 8)), draw(st.integers(1, 10**12))
    row = st.lists(st.integers(0, 10**15), min_size=bins, max_size=bins).map(tuple)
    lines = st.builds(MemoryLine, st.integers(0, 10**15), row, row, row, st.dictionaries(_names, row, max_size=3))
    elapsed = max(0, bins - 1) * width + draw(st.integers(1, width)) if bins else 0
    workers = draw(st.dictionaries(_names, lines, max_size=3))
    return MemoryTimeline(width, elapsed, draw(lines), workers, draw(st.integers(0, 10**4)))


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of the type of a field, by the fields of its own if it has some."""
    parts, origin = get_args(hint), get_origin(hint)
    if hint in _ANY:
        return _ANY[hint]
    if origin is UnionType:
        return st.none() | anything(parts[0])
    if origin is Mapping:
        return st.dictionaries(_names, anything(parts[1]), max_size=5)
    if origin is tuple:
        return st.lists(anything(parts[0]), max_size=3).map(tuple)
    hints = get_type_hints(hint)
    return st.builds(
        hint, **{field.name: _FIELDS.get(field.name, anything(hints[field.name])) for field in fields(hint)}
    )


#: Strategies of types that are not drawn field by field.
_ANY: dict[Any, st.SearchStrategy[Any]] = {
    str: _names,
    int: st.integers(0, 10**15) | st.integers(0, 300),
    float: _amounts,
    bool: st.booleans(),
    Breakdown: breakdowns,
    Timeline: timelines(),
    MemoryTimeline: memory_timelines(),
    GpuTotals: any_gpu_totals(),
    Cause: st.sampled_from(Cause),
    Stack: st.lists(st.builds(Frame, _names, _names, st.integers(0, 10**6)), max_size=2).map(tuple),
    RunTrace: st.none(),
}

#: By worker or prefix; they need not agree with any breakdown.
_causes = st.dictionaries(
    _names, st.dictionaries(st.sampled_from(CAUSE_NAMES), st.integers(0, 10**15), max_size=8), max_size=4
)
_shares = st.floats(0, 1)

#: Strategies of fields with fewer values than their types, or more.
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("share", "confidence", "others_share"), _shares),
    **dict.fromkeys(("value", "peers", "low", "high", "z"), _numbers),
    **dict.fromkeys(("asked", "joined", "first_task"), st.floats(-1e9, 1e9)),
    "busy_with_work": st.none() | _shares,
    "median_seconds": _amounts.filter(bool),
    "nthreads": st.dictionaries(_names, st.integers(1, 256), max_size=4),
    "phases": st.dictionaries(st.sampled_from(PHASES), _amounts),
    "price_per_worker_hour": st.none() | st.floats(0, 1000),
    "savings": st.dictionaries(
        st.sampled_from(["all", "spill", "thread-noncpu/gil", "waiting-on-data", "slow-worker/w0"]),
        st.builds(Saved, _amounts, _amounts, _amounts),
    ),
    "signal": _names | st.sampled_from(["duration", "cpu_share", "memory"]),
    "since": _numbers | st.just(math.nan),
    "worker_saturation": st.none() | st.floats(0.1, 100.0),
    # consistent ones are drawn in profile_samples
    **dict.fromkeys(("profile", "gil_holders", "lock_looks", "gil_holds", "loop_blocks"), st.just(())),
    "attendance": st.just({}),
}


@st.composite
def _client_rows(draw: st.DrawFn) -> ClientRow:
    ns = draw(st.integers(0, 10**15))
    activity, stack = draw(st.sampled_from([*OWN_ACTIVITIES, *DASK_ACTIVITIES])), draw(_ANY[Stack])
    return ClientRow(activity, stack, ns, draw(st.integers(0, ns)), draw(st.integers(0, ns)))


_ANY[ClientRow] = _client_rows()
_ANY[Facts] = st.builds(
    facts_of,
    by_worker=st.dictionaries(_some_name, breakdowns, max_size=5),
    by_prefix=st.dictionaries(_some_name, breakdowns, max_size=5),
    by_span=st.dictionaries(_some_name, breakdowns, max_size=5),
    causes_by_worker=_causes,
    causes_by_prefix=_causes,
    causes_by_span=_causes,
    outside=st.dictionaries(_some_name, _amounts.map(lambda seconds: min(seconds, 1e9)), max_size=5),
    details=st.dictionaries(_some_name, _amounts.map(lambda seconds: min(seconds, 1e9)), max_size=5),
    moved=st.dictionaries(st.sampled_from(WAYS), st.builds(Amount, st.integers(0, 10**15), st.integers(1, 10**9))),
    metered=st.lists(
        st.builds(MeteredRow, _names, _names, _names, _names, _some_name, _names, st.floats(0, 1e6)), max_size=3
    ),
)
reports: st.SearchStrategy[EfficiencyReport] = anything(EfficiencyReport)


def everything() -> EfficiencyReport:
    """A report with something in each of its fields, each name of its own."""
    numbers = itertools.count()
    cause = {next(name for name in CAUSE_NAMES if name.startswith("thread-noncpu")): 3 * SECOND}
    row = seconds(**{bucket.replace("-", "_"): 2.5 for bucket in Bucket})
    times = Timeline(SECOND, 2 * SECOND, {ACTIVITIES[0]: (1, 2)})
    line = MemoryLine(3, (1, 2), (1, 2), (0, 1), {"w0": (1, 2)})
    fixed: dict[Any, Any] = {
        MemoryTimeline: MemoryTimeline(SECOND, 2 * SECOND, line, {"w0": line}, 3),
        Breakdown: row, Timeline: times, GpuTotals: gpu_totals(), Cause: Cause.SLEEP, Stack: (Frame("f", "a.py", 3),),
        int: 3, float: 0.5, bool: True, ClientRow: ClientRow("compute", (Frame("f", "a.py", 3),), 3, 2, 1),
    }  # fmt: skip
    views: dict[str, Any] = {
        **{name: {"w0": row, "w1": row} for name in ("by_worker", "by_prefix", "by_span")},
        **{name: {"row": cause} for name in ("causes_by_worker", "causes_by_prefix", "causes_by_span")},
        **{name: {"w0": 0.5, "w1": 0.5} for name in ("outside", "details")},
        "moved": {way: Amount(10, 2) for way in WAYS},
    }
    named: dict[str, Any] = {
        "phases": dict.fromkeys(PHASES, 2.5),
        "trace": None,
        "savings": {"all": Saved(1.0, 0.5, 2.0)},
    }
    views["metered"] = (
        MeteredRow("w0", EXECUTE, "span", "load", "own label", "own unit", 2.0),
        MeteredRow("w0", EXECUTE, "span", "load", "p2p-shard-cpu", SECONDS, 2.0),
        MeteredRow("w0", P2P, "span", "background-comms", "process", BYTES, 2.0),
        MeteredRow("w1", MEMORY, "span", "", PROCESS, BYTES, 2.0),
        MeteredRow("w1", MEMORY, "span", "load", IN_MEMORY, BYTE_SECONDS, 2.0),
        MeteredRow("w1", MEMORY, "", "load", IN_MEMORY + AT_PEAK, BYTES, 1.0),
    )
    fixed[Facts] = facts_of(**views)

    def filled(hint: Any, name: str) -> Any:
        if name in named:
            return named[name]
        parts, origin = get_args(hint), get_origin(hint)
        if hint in fixed:
            return fixed[hint]
        if hint is str:
            return f"{name}{next(numbers)}"
        if origin is UnionType:
            return filled(parts[0], name)
        if origin is Mapping:
            return {"w0": filled(parts[1], name), "w1": filled(parts[1], name)}
        if origin is tuple:
            return (filled(parts[0], name), filled(parts[0], name))
        hints = get_type_hints(hint)
        return hint(**{field.name: filled(hints[field.name], field.name) for field in fields(hint)})

    report: EfficiencyReport = filled(EfficiencyReport, "")
    return report
