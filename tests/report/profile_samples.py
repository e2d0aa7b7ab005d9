"""A report with causes and stacks, worked out by hand; and any consistent one."""

from collections import Counter
from typing import Any

from hypothesis import strategies as st

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import CAUSES, Breakdown, Bucket, combine, fit_causes
from dask_efficiency.accounts.lines import EVENT_LOOP, Frame
from dask_efficiency.report.values import GilHolder, LongHold, ProfileRow
from tests.report.samples import HOSTILE_NAMES, SECOND, report_of, seconds

PANDAS = "/opt/venv/lib/python3.12/site-packages/pandas/core/strings"
ETL = "/home/me/project/etl.py"

CLEAN = Frame("clean", ETL, 88)
UPPER = (
    CLEAN,
    Frame("StringMethods.upper", f"{PANDAS}/accessor.py", 1200),
    Frame("ObjectStringArrayMixin._str_map", f"{PANDAS}/object_array.py", 90),
)
SPLIT = (Frame("clean", ETL, 89), Frame("StringMethods.split", f"{PANDAS}/accessor.py", 900))
READ = (Frame("load", ETL, 20), Frame("BufferedReader.read", "/usr/lib/python3.12/_pyio.py", 5))
ARROW = (Frame("read_table", "/opt/venv/lib/python3.12/site-packages/pyarrow/parquet/core.py", 1800),)
LOOP = (Frame("BaseEventLoop.run_forever", "/usr/lib/python3.12/asyncio/base_events.py", 640),)


def profiled(**fields: Any) -> EfficiencyReport:
    """28 thread-seconds: ``clean`` waits for the GIL, ``load`` for files; two thirds of the GIL's at one line."""
    noncpu, overhead = "thread-noncpu", {"overhead/hand-over": 400_000_000, "overhead/event-loop": 600_000_000}
    clean = {f"{noncpu}/gil": 9 * SECOND, f"{noncpu}/core": SECOND}
    load = {f"{noncpu}/file": 3 * SECOND, f"{noncpu}/unknown": SECOND}
    given: dict[str, Any] = {
        "by_worker": {
            "a": seconds(thread_cpu=6, thread_noncpu=10, idle=1, overhead=1),
            "b": seconds(thread_cpu=1, library_threads=2, thread_noncpu=4, idle=3),
        },
        "by_prefix": {
            "clean": seconds(thread_cpu=6, thread_noncpu=10, overhead=1),
            "load": seconds(thread_cpu=1, library_threads=2, thread_noncpu=4),
        },
        "nthreads": {"a": 4, "b": 4},
        "causes_by_worker": {
            "a": clean | {"idle/scheduler": SECOND} | overhead,
            "b": load | {"idle/parallelism": 3 * SECOND},
        },
        "causes_by_prefix": {"clean": clean, "load": load},
        "profile": (
            # as sampled: 200 : 100 of the 9 s, and all of the 3 s
            ProfileRow(noncpu, "gil", "clean", UPPER, 200),
            ProfileRow(noncpu, "gil", "clean", SPLIT, 100),
            ProfileRow(noncpu, "file", "load", READ, 7),
            ProfileRow("thread-cpu", "", "clean", UPPER, 50),
            ProfileRow("library-threads", "", "load", ARROW, 10),
        ),
        "gil_holders": (
            GilHolder("clean", "clean", UPPER, 40),
            GilHolder("clean", EVENT_LOOP, LOOP, 50),
            GilHolder("clean", "clean", UPPER, 30),
        ),
        "gil_holds": (LongHold("a", "clean", UPPER, 0.05), LongHold("a", "clean", UPPER, 1.2)),
        "loop_blocks": (LongHold("b", EVENT_LOOP, LOOP, 3.4),),
        "waited_for": {"clean": 2 * SECOND, "load": SECOND},
    }
    return report_of(**(given | fields))


_names = st.sampled_from(["clean", "load", "sum", *HOSTILE_NAMES[:7]]) | st.text(max_size=6)

_frames = st.builds(
    Frame,
    _names,
    st.sampled_from([ETL, f"{PANDAS}/accessor.py", "<frozen importlib>", "", *HOSTILE_NAMES[:7]]),
    st.integers(0, 10**6),
)
_stacks = st.lists(_frames, max_size=5).map(tuple)

_ns = st.integers(0, 10**13) | st.integers(0, 3)


@st.composite
def profiled_reports(draw: st.DrawFn) -> EfficiencyReport:
    """Any report whose sums are consistent, with any samples of it."""
    held = (Bucket.THREAD_CPU, Bucket.LIBRARY_THREADS, Bucket.THREAD_NONCPU, Bucket.SPILL, Bucket.OVERHEAD)
    by_prefix = draw(st.dictionaries(_names, st.dictionaries(st.sampled_from(held), _ns).map(Breakdown), max_size=4))
    free = Breakdown(draw(st.dictionaries(st.sampled_from((Bucket.IDLE, Bucket.NO_WORK, Bucket.PAUSED)), _ns)))
    noncpu, idle = Bucket.THREAD_NONCPU, Bucket.IDLE

    def weights(bucket: Bucket) -> dict[str, int]:
        return draw(st.dictionaries(st.sampled_from(CAUSES[bucket]), _ns))

    causes_by_prefix = {
        prefix: fit_causes(weights(noncpu), noncpu, row.ns(noncpu)) for prefix, row in by_prefix.items()
    }
    whole = combine((*by_prefix.values(), free))
    causes: Counter[str] = Counter()
    for row in causes_by_prefix.values():
        causes.update(row)
    causes.update(fit_causes(weights(idle), idle, whole.ns(idle)))
    causes.update(fit_causes(weights(Bucket.OVERHEAD), Bucket.OVERHEAD, whole.ns(Bucket.OVERHEAD)))
    reasons = st.sampled_from([("thread-cpu", ""), *((str(noncpu), cause) for cause in CAUSES[noncpu])])
    prefixes = st.sampled_from([*by_prefix, "clean"])
    rows = st.lists(st.tuples(reasons, prefixes, _stacks, _ns), max_size=8)
    return report_of(
        by_worker={"w0": whole},
        by_prefix=by_prefix,
        causes_by_worker={"w0": dict(causes)},
        causes_by_prefix=causes_by_prefix,
        profile=tuple(ProfileRow(*reason, prefix, stack, ns) for reason, prefix, stack, ns in draw(rows)),
        gil_holders=tuple(draw(st.lists(st.builds(GilHolder, _names, _names, _stacks, _ns), max_size=4))),
        gil_holds=tuple(draw(st.lists(st.builds(LongHold, _names, _names, _stacks, st.floats(0, 1e6)), max_size=4))),
        waited_for=draw(st.dictionaries(_names, _ns, max_size=3)),
    )
