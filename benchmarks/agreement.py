"""Goal: within 1 % of Dask's own figures wherever both are right; sums exact; a cause for 95 % of the thread time.

``python -m benchmarks.agreement [NAME ...] [--scale 0.3]`` runs each workload on a cluster of processes of its own, in
a report, and prints what the report says, what Dask's fine performance metrics and spans say, and the ratio. Then it
says whether the buckets of each worker add up to its threads times its time, in nanoseconds, and for which share of the
thread time there is no cause: ``unmeasured``, and what is ``unknown`` in the other buckets. It fails if a sum is off,
or more than 5 % has no cause at full size. A workload whose libraries are missing is skipped. ``docs/accounting.md``
explains the differences.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
from dask.delayed import delayed
from distributed import Client, secede, wait
from distributed.metrics import context_meter

from benchmarks.figures import figure
from benchmarks.real_programs import PROGRAMS, Program, Work, write_orders
from benchmarks.stragglers_work import burn
from benchmarks.workload_runs import cluster, lacking, parser_of, write
from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report, snapshot
from dask_efficiency.accounts.buckets import CAUSES, HELD, UNKNOWN, Bucket, combine
from dask_efficiency.accounts.metered import SPILL_LABELS
from dask_efficiency.accounts.wire.heartbeats import decode
from dask_efficiency.accounts.wire.snapshots import NotMeasured
from dask_efficiency.report import demo

#: Dask's labels of what a task takes outside its thread; and of tries that came to nothing, which it does not divide.
OUTSIDE_THE_THREAD = SPILL_LABELS | {"executor", "other"}
CAME_TO_NOTHING = frozenset({"failed", "cancelled"})

#: Our buckets of what it takes inside.
IN_THE_THREAD = (Bucket.THREAD_CPU, Bucket.GPU, Bucket.LIBRARY_THREADS, Bucket.THREAD_NONCPU)

#: A report waits for workers however busy the machine is.
PATIENT = {"efficiency.report-timeout": "60s"}

#: Share of the thread time without a cause, at most; where runs are shorter than at full size, too little is sampled.
MAX_WITHOUT_CAUSE = 0.05

#: Workers that spill above a tenth of their memory, and for no other reason.
SPILLING = {
    "distributed.worker.memory.target": 0.1,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}


# -- the figures of both ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figures:
    """Our figures and Dask's of one run; seconds by prefix, and by bucket or label."""

    report: EfficiencyReport
    #: Our buckets, without what libraries' threads did in the place of free slots.
    ours: Mapping[str, Mapping[str, float]]
    #: Dask's fine performance metrics, as the scheduler sums them, and as the run's span does.
    dasks: Mapping[str, Mapping[str, float]]
    by_span: Mapping[str, Mapping[str, float]]
    #: From the start to the stop of each task that succeeded, as Dask's spans have it.
    computing: Mapping[str, float]
    #: Tasks that succeeded, by Dask's counts.
    succeeded: int
    #: (Start, stop, threads of the cluster) of the time in which there was work, as Dask's spans have it.
    intervals: Sequence[tuple[float, float, int]]
    #: Bytes that P2P shuffles sent, by Dask's metrics.
    shuffled: float

    def of_ours(self, *buckets: str) -> float:
        """Seconds of these buckets; of all without any."""
        rows = self.ours.values()
        return float(sum(s for row in rows for bucket, s in row.items() if not buckets or bucket in buckets))

    def of_dasks(self, chosen: Callable[[str], bool] = bool) -> float:
        """Seconds of the labels that are chosen; of all without a choice."""
        return float(sum(s for row in self.dasks.values() for label, s in row.items() if chosen(label)))

    @property
    def metered(self) -> float:
        """Seconds of labels inside tasks, P2P's and users', which Dask takes out of both clocks of a task's thread."""
        return self.of_dasks(lambda label: is_in_the_thread(label) and not is_cpu(label) and label != "thread-noncpu")

    @property
    def seceded(self) -> float:
        """Seconds of ours of tasks that had left their slots; no bucket has them."""
        return self.report.outside.get("seceded tasks", 0.0)

    @property
    def rescheduled(self) -> float:
        """Seconds of tasks that shuffles stopped to have them run where their data is; cancelled to Dask."""
        return self.report.causes.get("overhead/rescheduled", 0.0)

    def compared(self) -> dict[str, tuple[float, float]]:
        """Ours and Dask's, by what it is."""
        held, active = self.of_ours(), sum(n * (stop - start) for start, stop, n in self.intervals)
        rows = {
            "tasks that succeeded": (self.report.tasks.get("succeeded", 0), self.succeeded),
            "CPU of tasks' threads": (self.of_ours(Bucket.THREAD_CPU), self.of_dasks(is_cpu)),
            "in the thread": (self.of_ours(*IN_THE_THREAD), self.of_dasks(is_in_the_thread)),
            "in the thread, by spans": (self.of_ours(*IN_THE_THREAD), sum(self.computing.values())),
            "spill": (self.of_ours(Bucket.SPILL), self.of_dasks(SPILL_LABELS.__contains__)),
            "failed": (self.of_ours(Bucket.FAILED), self.of_dasks("failed".__eq__)),
            "cancelled, rescheduled": (
                self.of_ours(Bucket.CANCELLED) + self.rescheduled,
                self.of_dasks("cancelled".__eq__),
            ),
            "held by tasks": (held, self.of_dasks()),
            "threads x time with work": (self.report.thread_seconds, active),
        }
        if self.shuffled:
            rows["bytes of P2P shuffles"] = self.report.moved["shuffled"].nbytes, self.shuffled
        if self.seceded:
            rows["held, and after seceding"] = held + self.seceded, self.of_dasks()
        return rows


def is_cpu(label: str) -> bool:
    """True for Dask's labels of the CPU clock of a task's thread: its own, and those of P2P."""
    return label == "thread-cpu" or label.endswith("-cpu")


def is_in_the_thread(label: str) -> bool:
    """True for labels of time in the thread, users' own among them."""
    return label not in OUTSIDE_THE_THREAD and label not in CAME_TO_NOTHING


def measured(client: Client, name: str, work: Work) -> Figures:
    """Do the work in a report of this name, which no other has, and gather what both say."""
    before, former = snapshot(client).by_prefix, _dask_totals(client)
    with efficiency_report(client, name=name) as measuring:
        work()
    report, after = measuring.report, snapshot(client).by_prefix
    ours = {}
    for prefix, row in report.by_prefix.items():
        # The accounts since the beginning have what libraries' threads did in tasks' own slots only.
        library = after[prefix].ns(Bucket.LIBRARY_THREADS)
        if prefix in before:
            library -= before[prefix].ns(Bucket.LIBRARY_THREADS)
        ours[prefix] = {**row, Bucket.LIBRARY_THREADS: library / 1e9}
    dasks: dict[str, dict[str, float]] = {}
    for (prefix, label), seconds in _dask_totals(client).items():
        if (grown := seconds - former.get((prefix, label), 0.0)) > 0:
            dasks.setdefault(prefix, {})[label] = grown
    return Figures(report, ours, dasks, *client.run_on_scheduler(_of_span, name=name))


def _dask_totals(client: Client) -> dict[tuple[str, str], float]:
    """Dask's seconds so far by prefix and label, once the scheduler has read all workers' digests."""
    while True:
        reported = client.run(_worker_digests)
        totals: dict[tuple[str, str], float] | None = client.run_on_scheduler(_of_scheduler, reported=reported)
        if totals is not None:
            return totals
        time.sleep(0.05)


async def _worker_digests(dask_worker: Any) -> dict[Any, float]:
    """A worker's digests of tasks so far, after a heartbeat."""
    await dask_worker.heartbeat()
    return {key: value for key, value in dask_worker.digests_total.items() if key[0] == "execute"}


def _of_scheduler(dask_scheduler: Any, reported: Mapping[str, Mapping[Any, float]]) -> Any:
    """Dask's seconds by prefix and label; None until the scheduler has read all workers' digests."""
    expected: Counter[Any] = Counter()
    for digests in reported.values():
        for (context, _, *rest), value in digests.items():
            expected[context, *rest] += value
    of_all = dask_scheduler.cumulative_worker_metrics
    if any(of_all.get(key, 0) < value - 1e-6 * abs(value) for key, value in expected.items()):
        return None
    return _seconds(of_all)


def _seconds(metrics: Mapping[Any, float]) -> dict[tuple[str, str], float]:
    """Seconds of tasks by prefix and label, of Dask's metrics."""
    rows = ((*key[1:-1], value) for key, value in metrics.items() if (key[0], key[-1]) == ("execute", "seconds"))
    return {(prefix, "/".join(map(str, label))): value for prefix, *label, value in rows if prefix != "N/A"}


def _of_span(dask_scheduler: Any, name: str) -> Any:
    """Dask's figures of a span."""
    span = dask_scheduler.extensions["spans"].merge_by_tags(name)
    seconds: dict[str, dict[str, float]] = {}
    for (prefix, label), value in _seconds(span.cumulative_worker_metrics).items():
        seconds.setdefault(prefix, {})[label] = value
    computing: Counter[str] = Counter()
    for group in span.traverse_groups():
        computing[group.prefix.name] += group.all_durations.get("compute", 0.0)
    succeeded = sum(span.states[state] for state in ("memory", "released", "forgotten"))
    shuffled = span.cumulative_worker_metrics.get(("p2p", "background-comms", "process", "bytes"), 0.0)
    return seconds, dict(computing), succeeded, span.nthreads_intervals, shuffled


# -- sums and causes -------------------------------------------------------------------------------


def missing_ns(client: Client, report: EfficiencyReport) -> int:
    """Nanoseconds by which any sum is off: of a worker's buckets, or of prefixes and workers in a bucket of tasks."""
    off = sum(map(abs, client.run(_off).values()))
    by_prefix = combine(report.by_prefix.values())
    tasks = set(HELD) - {Bucket.SPILL}  # free slots have some of it, too
    return off + sum(abs(by_prefix.ns(bucket) - report.breakdown.ns(bucket)) for bucket in tasks)


async def _off(dask_worker: Any) -> int:
    """By how much a worker's buckets differ from its threads times its time, in its present snapshot."""
    decoded = decode((await dask_worker.handlers["efficiency"]("snapshot"))["snapshot"])
    if isinstance(decoded, NotMeasured):
        raise RuntimeError(decoded.reason)
    balance = decoded.balance
    return sum(balance.finalized.values()) + balance.running - balance.nthreads * balance.elapsed


def without_cause(report: EfficiencyReport) -> dict[str, float]:
    """Shares of the thread time for which there is no cause, by bucket."""
    found = {Bucket.UNMEASURED: report.breakdown[Bucket.UNMEASURED]}
    for bucket in CAUSES:
        known = sum(seconds for cause, seconds in report.causes_of(bucket).items() if cause != UNKNOWN)
        found[bucket] = report.breakdown[bucket] - known
    return {bucket: seconds / report.thread_seconds for bucket, seconds in found.items() if report.thread_seconds}


# -- workloads -------------------------------------------------------------------------------------


def groupby_shuffle(client: Client, folder: Path, scale: float) -> Work:
    """Dask's timeseries, grouped, and shuffled by P2P."""
    return lambda: demo.group_and_shuffle(client, scale)


def _days(scale: float, seed: int) -> Any:
    import dask.datasets
    import pandas as pd

    begin = pd.Timestamp("2000-01-01")
    return dask.datasets.timeseries(begin, begin + pd.Timedelta(days=max(2, round(48 * scale))), seed=seed)


def merge(client: Client, folder: Path, scale: float) -> Work:
    """Two timeseries, merged on a column by P2P."""
    left, right = (_days(scale, seed)[["id", "x"]] for seed in (1, 2))
    right = right.drop_duplicates(subset="id", split_out=4)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        joined = left.merge(right, on="id", shuffle_method="p2p", broadcast=False)
    return lambda: joined["x_x"].mean().compute()


def parquet(client: Client, folder: Path, scale: float) -> Work:
    """Orders read from parquet by pyarrow, grouped, and merged."""
    import dask.dataframe as dd

    write_orders(folder, max(2, round(16 * scale)), 200_000)
    frame = dd.read_parquet(str(folder))
    by_city = frame.groupby("city")["price"].mean().reset_index()
    return lambda: frame.merge(by_city, on="city")["price_y"].mean().compute()


def parquet_shuffled(client: Client, folder: Path, scale: float) -> Work:
    """Orders read from parquet, grouped by their customers and merged with these by P2P."""
    import dask.dataframe as dd

    write_orders(folder, max(2, round(16 * scale)), 200_000)
    frame = dd.read_parquet(str(folder), columns=["customer", "price"])

    def work() -> Any:
        with dask.config.set({"dataframe.shuffle.method": "p2p"}):
            by_customer = frame.groupby("customer")["price"].mean(split_out=4).reset_index()
            return frame.merge(by_customer, on="customer", broadcast=False)["price_y"].mean().compute()

    return work


def rechunk(client: Client, folder: Path, scale: float) -> Work:
    """Rows of an array become columns by P2P."""
    import dask.array as da

    side = round(8000 * scale**0.5)
    array = da.random.default_rng(1).random((side, side), chunks=(side // 8, side))

    def work() -> Any:
        with dask.config.set({"array.rechunk.method": "p2p"}):
            return array.rechunk((side, side // 8)).std().compute()

    return work


def climatology(client: Client, folder: Path, scale: float) -> Work:
    """Means of the months, and what each day differs from them."""
    import dask.array as da
    import pandas as pd
    import xarray as xr

    days = pd.date_range("2000-01-01", periods=max(365, round(1825 * scale)))
    values = da.random.default_rng(1).normal(15.0, 3.0, (len(days), 90, 180), chunks=(100, 90, 180))
    months = xr.DataArray(values, dims=("time", "lat", "lon"), coords={"time": days}).groupby("time.month")
    return lambda: (months - months.mean("time")).std("time").compute()


def tensordot(client: Client, folder: Path, scale: float) -> Work:
    import dask.array as da

    side = round(6000 * scale**0.5)
    array = da.random.default_rng(1).random((side, side), chunks=(side // 4, side // 4))
    return lambda: da.tensordot(array, array.T, axes=1).std().compute()


def bag(client: Client, folder: Path, scale: float) -> Work:
    import dask.bag as db

    numbers = db.range(max(10_000, round(3_000_000 * scale)), npartitions=16)
    return lambda: numbers.map(str).filter(lambda text: "7" in text).foldby(len, lambda n, _: n + 1, 0).compute()


def make(seed: int, nbytes: int) -> Any:
    import numpy as np

    return np.random.default_rng(seed).random(nbytes // 8)


def read(array: Any) -> float:
    return float(array.sum())


def spill(client: Client, folder: Path, scale: float) -> Work:
    """Arrays beyond what workers keep in memory, made and read one after the other."""
    number = max(12, round(60 * scale))

    def work() -> Any:
        arrays = []
        for seed in range(number):
            arrays.append(delayed(make)(seed, 32 * 2**20).persist())
            wait(arrays[-1])
        return [delayed(read)(array).compute() for array in arrays]

    return work


def retry(client: Client, folder: Path, scale: float) -> Work:
    """Tasks of which a third of the tries fails, by chance; at full size at least, so that some do."""
    return lambda: demo.retry(client, max(scale, 1.0))


def burn_then_leave(seconds: float) -> None:
    burn(seconds)
    secede()
    time.sleep(5 * seconds)


def seceding(client: Client, folder: Path, scale: float) -> Work:
    """Tasks that leave their slots for most of their time: Dask counts their threads twice."""
    return lambda: client.gather(client.map(burn_then_leave, [0.1] * max(8, round(40 * scale)), pure=False))


def burn_and_sleep_metered(seconds: float) -> None:
    """Spin and sleep inside a label of the user's own, and spin outside."""
    with context_meter.meter("my-label"):
        burn(seconds)
        time.sleep(seconds)
    burn(seconds)


def labels(client: Client, folder: Path, scale: float) -> Work:
    """Tasks with a label of the user's own: Dask takes it out of both of its clocks."""
    return lambda: client.gather(client.map(burn_and_sleep_metered, [0.1] * max(8, round(40 * scale)), pure=False))


_FRAMES = ("pandas", "pyarrow")

WORKLOADS = {
    "groupby_shuffle": Program(groupby_shuffle, "a timeseries grouped and shuffled (P2P)", needs=_FRAMES),
    "merge": Program(merge, "two timeseries merged (P2P)", needs=_FRAMES),
    "parquet": Program(parquet, "parquet read by pyarrow, grouped and merged", needs=_FRAMES),
    "parquet_shuffled": Program(parquet_shuffled, "parquet, grouped and merged by customers (P2P)", needs=_FRAMES),
    "rechunk": Program(rechunk, "an array's rows become columns (P2P)"),
    "tensordot": Program(tensordot, "products of blocks of an array"),
    "bag": Program(bag, "a bag of Python objects"),
    "spill": Program(spill, "delayed, with three times what workers keep in memory"),
    "retry": Program(retry, "a third of the tries fails"),
    "seceding": Program(seceding, "tasks that leave their slots"),
    "labels": Program(labels, "labels of the user's own, by context_meter"),
    "climatology": Program(climatology, "xarray's anomalies of the means of months", needs=("xarray",)),
    **{name: PROGRAMS[name] for name in ("joblib_search", "xgboost_train")},
}


# -- printing --------------------------------------------------------------------------------------


def show(name: str, figures: Figures, missing: int) -> None:
    """The figures of one workload, as a table."""
    report = figures.report
    print(f"\n{name}: {WORKLOADS[name].about}; {report.window_seconds:.1f} s")
    print(f"  {'':26}{'ours':>10}{'Dask':>10}{'ratio':>9}")
    for what, (ours, dasks) in figures.compared().items():
        if max(ours, dasks) >= 0.0005:
            ratio = f"{ours / dasks:9.4f}" if dasks else ""
            number = "10" if isinstance(ours, int) else "10.3f"
            print(f"  {what:26}{ours:{number}}{dasks:{number}}{ratio}")
    print(f"  sums {'are exact' if not missing else f'are off by {missing} ns'}")
    shares = without_cause(report)
    parts = ", ".join(f"{bucket} {share:.1%}" for bucket, share in shares.items() if share >= 0.0005)
    print(f"  without a cause: {sum(shares.values()):.1%} of the thread time" + (f" ({parts})" if parts else ""))


def main() -> int:
    """Run, print and keep; fails where a sum is off, and at full size where too much has no cause."""
    options = parser_of(__doc__, WORKLOADS).parse_args()
    kept, failed, without = {}, False, {}
    for name in options.names or WORKLOADS:
        program = WORKLOADS[name]
        if lacks := lacking(program.needs):
            print(f"\n{name}: {lacks}")
            continue
        with (
            tempfile.TemporaryDirectory() as place,
            dask.config.set(PATIENT | (SPILLING if name == "spill" else {})),
            cluster(workers=program.workers, threads=program.threads, memory_limit="2 GiB") as client,
        ):
            client.register_plugin(EfficiencyPlugin())
            figures = measured(client, name, program.prepare(client, Path(place), options.scale))
            missing = missing_ns(client, figures.report)
        show(name, figures, missing)
        shares = without_cause(figures.report)
        kept[name] = {"figures": figures.compared(), "missing": missing, "no cause": shares}
        without[name] = 100 * sum(shares.values())
        failed |= bool(missing) or (options.scale == 1.0 and sum(shares.values()) > MAX_WITHOUT_CAUSE)
    write(options.json, kept)
    exact = sum(not one["missing"] for one in kept.values())
    figure("workloads whose sums are exact", exact, of=len(kept), at_least=len(kept))
    figure("most thread time without a cause", max(without.values()), "%", at_most=100 * MAX_WITHOUT_CAUSE)
    held = [one["figures"]["held by tasks"] for one in kept.values()]
    ratios = [ours / dasks for ours, dasks in held if dasks]
    figure("held time by Dask's", sorted(ratios))
    return failed


if __name__ == "__main__":
    sys.exit(main())
