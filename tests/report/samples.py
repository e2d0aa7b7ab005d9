"""Reports for the tests: one worked out by hand, and any report at all."""

import math
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import CAUSE_NAMES, Breakdown, Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.scheduler_loop import (
    CALLBACK,
    COMM,
    HOOK,
    STREAM,
    LoopBlock,
    LoopPart,
    SchedulerLoop,
)
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, KernelTotals
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker
from dask_efficiency.report.turnover import Arrival, LostWorker
from dask_efficiency.report.values import PHASES, HeldResult, Repeat, Saved
from dask_efficiency.runs.path.parts import PathSummary
from dask_efficiency.runs.stragglers.long_tail import LongTask
from tests.strategies import any_gpu_totals

SECOND = 1_000_000_000

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


def report_of(*workers: Breakdown, **fields: Any) -> EfficiencyReport:
    """A report over the workers given, named w0, w1, ..."""
    given: dict[str, Any] = {"name": "a run", "started": 0.0, "window_seconds": 5.0, "cluster_seconds": 4.5}
    given["by_worker"] = {f"w{i}": worker for i, worker in enumerate(workers)}
    return EfficiencyReport(**(given | fields))


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
    device = DeviceTotals(
        uuid,
        "NVIDIA H100 80GB HBM3",
        elapsed=10 * SECOND,
        kernels=4 * SECOND,
        copies=1 * SECOND,
        idle=5 * SECOND,
        shares={"train": 3_500_000_000, "load": SECOND},
        unattributed=500_000_000,
        tail=200_000_000,
    )
    given: dict[str, Any] = {
        "meter": "cupti",
        "description": "CUPTI 13.0",
        "devices": (device,),
        "kernels": (
            KernelTotals("train", KERNEL, 1000, 3_000_000_000),
            KernelTotals("train", "triton_poi_fused_add_0", 500, 600_000_000),
            KernelTotals("", "(other)", 20, 400_000_000),
        ),
        "hidden": {"train": 300_000_000},
        "kernel_ns": 4 * SECOND,
        "attributed_ns": 3_600_000_000,
        "cost": 50_000_000,
    }
    return GpuTotals(**(given | fields))


def with_gpus(**fields: Any) -> EfficiencyReport:
    """:func:`by_hand`'s two workers, with a GPU each: the second of half the kernels and no copies."""
    idle = DeviceTotals(
        "GPU-77e1b0aa-bbbb",
        "NVIDIA H100 80GB HBM3",
        elapsed=10 * SECOND,
        kernels=2 * SECOND,
        idle=8 * SECOND,
        shares={"train": 2 * SECOND},
    )
    kernels = (KernelTotals("train", KERNEL, 500, 2 * SECOND),)
    second = gpu_totals(
        devices=(idle,), kernels=kernels, hidden={}, kernel_ns=2 * SECOND, attributed_ns=2 * SECOND, cost=0
    )
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


_evidence = st.builds(
    Evidence,
    signal=_names | st.sampled_from(["duration", "cpu_share", "memory"]),
    value=_numbers,
    peers=_numbers,
    low=_numbers,
    high=_numbers,
    z=_numbers,
    tasks=st.integers(0, 10**9),
)


def findings() -> st.SearchStrategy[SlowWorker]:
    """Any finding at all."""
    return st.builds(
        SlowWorker,
        worker=_names,
        host=_names,
        cause=st.sampled_from(Cause),
        score=_amounts,
        confidence=st.floats(0, 1),
        since=st.floats(-1e12, 1e12) | st.just(math.nan),
        effect=_amounts | st.none(),
        seconds_lost=st.none() | _amounts,
        evidence=st.lists(_evidence, max_size=3).map(tuple),
    )


_times = st.floats(-1e9, 1e9)

_groups = st.dictionaries(_names, breakdowns, max_size=12)

#: By worker or prefix; they need not agree with any breakdown.
_cause_rows = st.dictionaries(
    _names, st.dictionaries(st.sampled_from(CAUSE_NAMES), st.integers(0, 10**15), max_size=8), max_size=4
)


def scheduler_loops() -> st.SearchStrategy[SchedulerLoop]:
    """Any account of a scheduler's event loop."""
    parts = st.lists(
        st.builds(
            LoopPart,
            kind=st.sampled_from([STREAM, COMM, CALLBACK, HOOK]),
            name=_names,
            function=_names,
            file=_names,
            line=st.integers(0, 10**6),
            seconds=_amounts,
            calls=st.integers(0, 10**9),
        ),
        max_size=3,
    ).map(tuple)
    stacks = st.lists(st.builds(Frame, _names, _names, st.integers(0, 10**6)), max_size=2).map(tuple)
    return st.builds(
        SchedulerLoop,
        seconds=_amounts,
        busy_seconds=st.none() | _amounts,
        lag_seconds=st.none() | _amounts,
        busy_with_work=st.none() | st.floats(0, 1),
        gc_seconds=_amounts,
        handlers_seconds=_amounts,
        hooks_seconds=_amounts,
        handlers=parts,
        hooks=parts,
        blocks=st.lists(st.builds(LoopBlock, _amounts, stacks), max_size=2).map(tuple),
    )


reports = st.builds(
    EfficiencyReport,
    name=_names,
    started=_amounts,
    window_seconds=_amounts,
    cluster_seconds=_amounts,
    by_worker=_groups,
    by_prefix=_groups,
    by_span=_groups,
    phases=st.dictionaries(st.sampled_from(PHASES), _amounts),
    tasks=st.dictionaries(_names, st.integers(0, 10**9), max_size=4),
    nthreads=st.dictionaries(_names, st.integers(1, 256), max_size=4),
    outside=st.dictionaries(_names, _amounts, max_size=4),
    details=st.dictionaries(_names, _amounts, max_size=4),
    not_measured=st.dictionaries(_names, _names, max_size=4),
    repeats=st.dictionaries(_names, st.builds(Repeat, st.integers(0, 10**9), st.integers(0, 10**9)), max_size=12),
    notes=st.lists(_names, max_size=3).map(tuple),
    price_per_worker_hour=st.none() | st.floats(0, 1000),
    environment=st.dictionaries(_names, _names, max_size=4),
    timeline=st.none() | timelines(),
    code=st.lists(_names, max_size=3).map(tuple),
    stragglers=st.lists(findings(), max_size=3).map(tuple),
    lost_workers=st.lists(
        st.builds(
            LostWorker,
            worker=_names,
            reason=_names,
            in_order=st.booleans(),
            ns=st.integers(0, 10**15),
            prefixes=st.dictionaries(_names, st.integers(0, 10**15), max_size=5),
            recomputed_ns=st.integers(0, 10**15),
            recomputed_tasks=st.integers(0, 10**9),
        ),
        max_size=3,
    ).map(tuple),
    gpu=st.dictionaries(_names, any_gpu_totals(), max_size=2),
    no_workers_seconds=_amounts,
    cores=st.none() | st.floats(0, 1e4),
    path=st.none()
    | st.builds(
        PathSummary,
        headline=_names,
        makespan_seconds=_amounts,
        seconds_by_kind=st.dictionaries(_names, _amounts, max_size=3),
        floor_seconds=_amounts,
        longest_task_seconds=_amounts,
        chain_seconds=_amounts,
    ),
    causes_by_worker=_cause_rows,
    causes_by_prefix=_cause_rows,
    scheduler_loop=st.none() | scheduler_loops(),
    waited_for=st.dictionaries(_names, st.integers(0, 10**15), max_size=3),
    not_sampled=st.dictionaries(_names, _names, max_size=3),
    savings=st.dictionaries(
        st.sampled_from(["all", "spill", "thread-noncpu/gil", "waiting-on-data", "slow-worker/w0"]),
        st.builds(Saved, _amounts, _amounts, _amounts),
        max_size=4,
    ),
    worker_saturation=st.none() | st.floats(0.1, 100.0),
    held_results=st.lists(
        st.builds(HeldResult, prefix=_names, client=_names, nbytes=_amounts, share=st.floats(0.0, 1.0)), max_size=3
    ).map(tuple),
    long_tail=st.lists(
        st.builds(
            LongTask,
            prefix=_names,
            key=_names,
            worker=_names,
            count=st.integers(0, 10**9),
            median_seconds=_amounts.filter(bool),
            seconds=_amounts,
            median_bytes=_amounts,
            nbytes=_amounts,
        ),
        max_size=3,
    ).map(tuple),
    skew=st.dictionaries(
        _names,
        st.builds(
            Skew,
            count=st.integers(0, 10**9),
            median_seconds=_amounts,
            p95_seconds=_amounts,
            max_seconds=_amounts,
            longest_key=_names,
            median_bytes=_amounts,
            p95_bytes=_amounts,
            max_bytes=_amounts,
            largest_key=_names,
            alone_seconds=_amounts,
        ),
        max_size=12,
    ),
    arrivals=st.lists(
        st.builds(Arrival, worker=_names, asked=_times, joined=_times, first_task=_times), max_size=3
    ).map(tuple),
)
