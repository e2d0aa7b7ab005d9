"""A source of figures that moves as a test sets it."""

from collections import deque
from collections.abc import Callable

from dask_efficiency.accounts.buckets import Bucket, fit_causes
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.time_left import TimeLeft
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.stalls import StalledWork
from dask_efficiency.accounts.wire.heartbeats import encode
from dask_efficiency.accounts.wire.snapshots import Snapshot, SnapshotCauses
from dask_efficiency.accounts.worker.balance import Balance, Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.plugin.scheduler.accounts import Moment

SECOND = 1_000_000_000


class Meter:
    """Workers of two threads; every second each ends one task that held one of them, and reports."""

    def __init__(self, workers: int = 2, prefixes: tuple[str, ...] = ("inc",)) -> None:
        self.cluster = ClusterLedger(at=0)
        self.off: str | None = None
        self.since = 1_000.0
        self.findings: tuple[SlowWorker, ...] = ()
        self.stalled: tuple[StalledWork, ...] = ()
        self.left: TimeLeft | None = None
        self.spans: dict[str, set[str]] = {}
        self.recent: deque[Moment] = deque()
        #: What each worker's only GPU has done by so many seconds; None without any.
        self.gpu: Callable[[str, int], GpuTotals] | None = None
        #: Share of ``thread-noncpu`` that is known to be waiting for the GIL; None where nobody samples.
        self.gil: float | None = None
        #: Data that moved on each worker, by ``way/unit``.
        self.amounts: dict[str, int] = {}
        self._prefixes = prefixes
        self._ledgers = {f"tcp://{i}": Ledger(2, at=0) for i in range(workers)}
        for address in self._ledgers:
            self.cluster.worker_joined(address, address, 2, at=0)
        self.cluster.work.set(True, at=0)
        self.poll(0)

    def prefixes_in(self, span: str) -> set[str]:
        return self.spans.get(span, set())

    def poll(self, at: int) -> None:
        self.recent.append(
            Moment(at, self.cluster.part("activity"), self.cluster.nthreads, self.cluster.part("cause_activity"))
        )

    def run_until(self, seconds: int) -> None:
        for now in range(self.recent[-1].at // SECOND + 1, seconds + 1):
            prefix = self._prefixes[now % len(self._prefixes)]
            for number, (address, ledger) in enumerate(self._ledgers.items()):
                ledger.reserve("task", prefix, at=(now - 1) * SECOND)
                hold = ledger.release("task", at=now * SECOND)
                assert hold is not None
                cpu = hold.ns * number // len(self._ledgers)
                ledger.finalize(hold, Outcome.SUCCEEDED, cpu=cpu, wall=hold.ns, spill=0)
                gpu = self.gpu and self.gpu(address, now)
                balance = ledger.balance(at=now * SECOND)
                causes = SnapshotCauses(not_sampled="no /proc") if self.gil is None else waiting(balance, self.gil)
                payload = encode(Snapshot(address, now, balance, gpu=gpu, causes=causes, amounts=self.amounts))
                self.cluster.receive(address, payload, at=now * SECOND)
            self.poll(now * SECOND)


def waiting(balance: Balance, gil: float) -> SnapshotCauses:
    """Of all ``thread-noncpu``, a share that waited for the GIL; nobody knows of the rest."""

    def split(ns: int) -> dict[str, int]:
        return fit_causes({"gil": round(gil * ns)}, Bucket.THREAD_NONCPU, ns)

    noncpu = Bucket.THREAD_NONCPU
    return SnapshotCauses(split(balance.finalized[noncpu]), split(balance.active[noncpu]))


def busy_gpu(address: str, seconds: int) -> GpuTotals:
    """A GPU of its own for each worker: of every second, half in kernels and a tenth in copies."""
    elapsed = seconds * SECOND
    kernels, copies = elapsed // 2, elapsed // 10
    device = DeviceTotals(
        f"GPU-{address}", "NVIDIA L4", elapsed, kernels, copies, elapsed - kernels - copies, {"inc": kernels + copies}
    )
    return GpuTotals("cupti", "CUPTI 13.0", (device,), kernel_ns=kernels, attributed_ns=kernels)
