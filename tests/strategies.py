"""Hypothesis strategies that several test files share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import (
    CAUSES,
    FINALIZED,
    Breakdown,
    Bucket,
    cause_name,
    causes_of,
    fit_causes,
)
from dask_efficiency.accounts.details import HolderRow, Holdup, SampleRow, WindowDetails
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, KernelTotals
from dask_efficiency.accounts.metered import Metered
from dask_efficiency.accounts.rows import divide
from dask_efficiency.accounts.skew import Most, TaskSizes
from dask_efficiency.accounts.wire.heartbeats import encode
from dask_efficiency.accounts.wire.snapshots import Snapshot, SnapshotCauses
from dask_efficiency.accounts.worker.answer import WindowAnswer, answer_of
from dask_efficiency.accounts.worker.balance import (
    ACTIVE_BUCKETS,
    FREE_BUCKETS,
    TASK_BUCKETS,
    UNHELD_BUCKETS,
    Balance,
    Outcome,
    WindowBalance,
)
from dask_efficiency.accounts.worker.ledger import Ledger

SECOND = 1_000_000_000

#: Names as users choose them: ASCII mostly, and sometimes anything that can be encoded.
names = st.sampled_from(["inc", "sum", "read-parquet"]) | st.text(st.characters(codec="utf-8"), max_size=20)

#: Nanoseconds: from nothing over one tick to hours, with edges more often than chance would have it.
nanoseconds = st.sampled_from([0, 1, 2, SECOND]) | st.integers(0, 10_000 * SECOND)

#: What a broken clock or digest may claim: negative, or far beyond any time held.
measurements = st.sampled_from([0, -1, 1 << 80, -(1 << 80)]) | st.integers(-20 * SECOND, 20 * SECOND)

#: Steps of a fake clock. It may stand still, and it may run backwards.
ticks = st.sampled_from([0, 1, 2, 3, 7]) | st.integers(-5, 5 * SECOND)

#: Steps of a clock that behaves.
steps = st.sampled_from([0, 1, 2, 3]) | st.integers(0, 3 * SECOND)

#: Anything that msgpack can carry, nested.
plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers(-9, 9) | st.binary(max_size=2), inner, max_size=4)
    ),
    max_leaves=12,
)


class Unnameable:
    """A label or a key of a class of the user's, which has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


#: Texts as users and libraries choose them: of any length, with control characters, no UTF-8.
odd_texts = (
    names
    | st.sampled_from(["\ud800", "a\udcff/b.py", "\x1b[2J\n\u202e", "x" * 5_000, "\U0001f600" * 300, "\udc80" * 300])
    | st.text(st.characters(exclude_categories=()), max_size=20)
)
#: And names that are no texts.
odd_names = odd_texts | st.sampled_from([b"\xff", None, 7, 10**4_000, ("a", "\ud800", 1), Unnameable(), float("nan")])

#: What they count: of any type and size, and no number at all.
odd_numbers = (
    st.sampled_from(
        [0, -1, 1 << 62, (1 << 62) + 1, 1 << 64, -(1 << 64), 10**400, -(10**400), 1_790_000_000_000_000_000]
    )
    | st.sampled_from([np.float32("nan"), np.float64(1.5), np.int64(7), np.uint64(1 << 63), np.array([1.0, 2.0])])
    | st.sampled_from([Decimal("1.5"), Decimal("NaN"), Decimal("1e999"), Fraction(1, 3), Fraction(10**400), 1j])
    | st.sampled_from(["1", b"1", None, True, (1,), Unnameable()])
    | st.floats()
    | st.integers()
)


def breakdowns() -> st.SearchStrategy[Breakdown]:
    """Any breakdown, ``running`` included."""
    return st.dictionaries(st.sampled_from(list(Bucket)), nanoseconds).map(Breakdown)


def rows(length: int = len(TASK_BUCKETS)) -> st.SearchStrategy[tuple[int, ...]]:
    """A row of nanoseconds."""
    return st.tuples(*[nanoseconds] * length)


def _by_name(buckets: Sequence[Bucket], values: Sequence[int]) -> dict[str, int]:
    return {str(bucket): ns for bucket, ns in zip(buckets, values, strict=True)}


@st.composite
def balances(draw: st.DrawFn, *, nthreads: int | None = None) -> Balance:
    """The accounts of some worker: they add up, and so do the prefixes."""
    n = draw(st.integers(1, 16)) if nthreads is None else nthreads
    prefixes = draw(st.dictionaries(names, rows(), max_size=4))
    tasks = [sum(row[i] for row in prefixes.values()) for i in range(len(TASK_BUCKETS))]
    free = list(draw(rows(len(FREE_BUCKETS))))
    running, spilling = draw(nanoseconds), draw(nanoseconds)
    tasks[TASK_BUCKETS.index("spill")] += spilling
    free[-1] += -(sum(tasks) + sum(free) + running) % n
    whole = sum(tasks) + sum(free) + running
    held = draw(st.dictionaries(names, st.integers(0, n), max_size=1))
    again = draw(st.dictionaries(names, st.integers(1, 9), max_size=3))
    recomputed = divide(again, tasks[TASK_BUCKETS.index("recomputed")]) if again else {}
    return Balance(
        nthreads=n,
        elapsed=whole // n,
        finalized={**_by_name(FREE_BUCKETS, free), **_by_name(TASK_BUCKETS, tasks)},
        running=running,
        prefixes=prefixes,
        tasks=draw(st.dictionaries(st.sampled_from([str(o) for o in Outcome]), st.integers(0, 1000))),
        active=_by_name(ACTIVE_BUCKETS, [0, sum(tasks) - spilling, 0, 0, spilling, running]),
        holding={prefix: (running, slots) for prefix, slots in held.items()},
        recomputed={mark: (ns, again[mark]) for mark, ns in recomputed.items()},
    )


@st.composite
def snapshots(draw: st.DrawFn, *, nthreads: int | None = None) -> Snapshot:
    """What a worker might send."""
    balance = draw(balances(nthreads=nthreads))
    return Snapshot(
        incarnation=draw(st.sampled_from(["a", "b", "c"]) | names),
        seq=draw(st.integers(0, 1 << 40)),
        balance=balance,
        outside=draw(st.dictionaries(names, nanoseconds, max_size=3)),
        details=draw(st.dictionaries(names, nanoseconds, max_size=3)),
        amounts=draw(st.dictionaries(names, nanoseconds, max_size=3)),
        final=draw(st.booleans()),
        gpu=draw(st.none() | any_gpu_totals()),
        causes=draw(st.just(SnapshotCauses(not_sampled="no samples")) | snapshot_causes(balance)),
    )


@st.composite
def causes(draw: st.DrawFn, bucket: Bucket, whole: int) -> dict[str, int]:
    """Some nanoseconds by bare cause."""
    weights = draw(st.dictionaries(st.sampled_from(CAUSES[bucket]), nanoseconds))
    return causes_of(fit_causes(weights, bucket, whole), bucket)


@st.composite
def snapshot_causes(draw: st.DrawFn, balance: Balance) -> SnapshotCauses:
    """The causes of some accounts: they add up to them."""
    both = (Bucket.THREAD_NONCPU, Bucket.OVERHEAD)

    def row(buckets: Mapping[str, int]) -> dict[str, int]:
        return {
            cause_name(bucket, cause): ns
            for bucket in both
            for cause, ns in draw(causes(bucket, buckets[bucket])).items()
        }

    return SnapshotCauses(finalized=row(balance.finalized), active=row(balance.active))


stacks = st.lists(st.tuples(names, names, st.integers(0, 10_000)), max_size=5).map(tuple)


#: (key, nanoseconds, bytes or -1) of the tasks of a prefix, by prefix.
compared_tasks = st.dictionaries(
    st.sampled_from(["join", "sum", "load"]),
    st.lists(st.tuples(st.text(max_size=3), st.integers(0, 100 * SECOND), st.just(-1) | st.integers(0, 1 << 40))),
)


def sizes_of(tasks: Mapping[str, Sequence[tuple[str, int, int]]]) -> dict[str, TaskSizes]:
    """What tasks took and made, by prefix."""
    found = {}
    for prefix, of_prefix in tasks.items():
        found[prefix] = sizes = TaskSizes()
        sizes.ns.add([ns for _, ns, _ in of_prefix])
        sizes.nbytes.add([nbytes for _, _, nbytes in of_prefix if nbytes >= 0])
        sizes.longest = max((Most(ns, key) for key, ns, _ in of_prefix), default=None)
        sizes.largest = max((Most(nbytes, key) for key, _, nbytes in of_prefix if nbytes >= 0), default=None)
    return found


@st.composite
def window_details(draw: st.DrawFn) -> WindowDetails:
    """What a worker may tell of a window."""
    holds = st.lists(st.builds(Holdup, nanoseconds, names, stacks), max_size=3).map(tuple)
    place = st.builds(SampleRow, st.sampled_from([str(b) for b in Bucket]), st.sampled_from(["", "gil"]), names, stacks)
    return WindowDetails(
        profile=draw(st.dictionaries(place, nanoseconds, max_size=5)),
        holders=draw(st.dictionaries(st.builds(HolderRow, names, names, stacks), nanoseconds, max_size=3)),
        lock_looks=draw(st.dictionaries(st.builds(HolderRow, names, names, stacks), nanoseconds, max_size=3)),
        gil_holds=draw(holds),
        loop_blocks=draw(holds),
        skew=draw(compared_tasks.map(sizes_of)),
    )


@st.composite
def window_balances(draw: st.DrawFn) -> WindowBalance:
    """The accounts of some window: they add up."""
    n = draw(st.integers(1, 16))
    window = draw(st.dictionaries(st.tuples(names, names), rows(len(TASK_BUCKETS) + 1), max_size=4))
    free = list(draw(rows(len(UNHELD_BUCKETS))))
    held = sum(sum(row) for row in window.values())
    free[-1] += -(held + sum(free)) % n
    return WindowBalance(
        nthreads=n,
        elapsed=(held + sum(free)) // n,
        free=_by_name(UNHELD_BUCKETS, free),
        rows=window,
        tasks=draw(st.dictionaries(st.sampled_from([str(o) for o in Outcome]), st.integers(0, 1000))),
    )


#: What was metered; a label may be empty.
metered = st.dictionaries(st.builds(Metered, names, names, names, names, names), nanoseconds, max_size=3)


@st.composite
def window_answers(draw: st.DrawFn) -> WindowAnswer:
    """What a worker may answer about a window."""
    balance = draw(window_balances())
    noncpu = TASK_BUCKETS.index(Bucket.THREAD_NONCPU)
    weights = st.dictionaries(st.sampled_from(CAUSES[Bucket.THREAD_NONCPU]), st.integers(1, 9), min_size=1)
    sampled = draw(st.sets(st.sampled_from([*balance.rows]))) if balance.rows else set()
    return answer_of(
        balance,
        causes={key: divide(draw(weights), balance.rows[key][noncpu]) for key in sampled},
        overhead=draw(st.dictionaries(st.sampled_from(CAUSES[Bucket.OVERHEAD]), nanoseconds)),
        beside_free_slots=draw(st.dictionaries(st.tuples(names, names), nanoseconds, max_size=3)),
        metered=draw(metered),
        details=draw(window_details()),
    )


def standings() -> st.SearchStrategy[dict[str, int]]:
    """Settled nanoseconds by bucket, some of them missing."""
    return st.dictionaries(st.sampled_from([str(bucket) for bucket in FINALIZED]), nanoseconds)


def idle_snapshot(nthreads: int, elapsed: int, **changes: Any) -> Snapshot:
    """The snapshot of a worker that did nothing for ``elapsed`` nanoseconds; of changes, some are of its balance."""
    of_balance = {name: changes.pop(name) for name in list(changes) if name in Balance.__dataclass_fields__}
    balance = replace(Ledger(nthreads, at=0).balance(at=elapsed), **of_balance)
    return replace(Snapshot("a", 1, balance), **changes)


def idle_payload(nthreads: int, elapsed: int, **changes: Any) -> dict[str, Any]:
    """The same as it travels in full."""
    return encode(idle_snapshot(nthreads, elapsed, **changes))


@st.composite
def device_totals(draw: st.DrawFn, uuid: str) -> DeviceTotals:
    """A device's time as some worker saw it: it adds up, and so do the shares."""
    shares = draw(st.dictionaries(names, nanoseconds, max_size=3))
    unattributed, idle = draw(nanoseconds), draw(nanoseconds)
    used = sum(shares.values()) + unattributed
    kernels = draw(st.integers(0, used))
    return DeviceTotals(
        uuid=uuid,
        name=draw(names),
        elapsed=used + idle,
        kernels=kernels,
        copies=used - kernels,
        idle=idle,
        shares=shares,
        unattributed=unattributed,
        tail=draw(nanoseconds),
        late=draw(nanoseconds),
    )


@st.composite
def any_gpu_totals(draw: st.DrawFn) -> GpuTotals:
    """What some worker's GPU accounts might hold."""
    uuids = draw(st.lists(st.sampled_from(["GPU-0", "GPU-1", "MIG-2"]), unique=True, max_size=3))
    kernel_ns = draw(nanoseconds)
    readings = st.dictionaries(st.sampled_from(["power_watts", "sm_clock_hertz"]), st.floats(0, 1e12))
    return GpuTotals(
        meter=draw(st.sampled_from(["cupti", "torch-events", "none"])),
        description=draw(names),
        devices=tuple(draw(device_totals(uuid)) for uuid in uuids),
        kernels=tuple(
            draw(st.lists(st.builds(KernelTotals, names, names, st.integers(0, 99), nanoseconds), max_size=3))
        ),
        hidden=draw(st.dictionaries(names, nanoseconds, max_size=3)),
        kernel_ns=kernel_ns,
        attributed_ns=draw(st.integers(0, kernel_ns)),
        bounds=draw(st.dictionaries(names, nanoseconds, max_size=3)),
        dropped=draw(st.integers(0, 9)),
        gaps=draw(nanoseconds),
        cost=draw(nanoseconds),
        unknown_tasks=draw(st.integers(0, 9)),
        readings={uuid: draw(readings) for uuid in uuids},
    )
