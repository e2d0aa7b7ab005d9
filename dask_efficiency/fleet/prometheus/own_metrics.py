"""What a watch tells Prometheus of itself, on a port of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker

PREFIX = "dask_efficiency_watch"


class OwnMetrics:
    """Counters and gauges of a watch.

    Raises
    ------
    ImportError
        If prometheus_client is not installed; the extra ``prometheus`` has it.
    """

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Gauge
        from prometheus_client import Counter as Counted

        self.registry = CollectorRegistry()

        def counted(name: str, meaning: str, labels: Iterable[str] = ()) -> Any:
            return Counted(f"{PREFIX}_{name}", meaning, labels, registry=self.registry)

        def gauge(name: str, meaning: str, labels: Iterable[str] = ()) -> Any:
            return Gauge(f"{PREFIX}_{name}", meaning, labels, registry=self.registry)

        self._rounds = counted("rounds", "Rounds, by whether they came to a judgement", ["outcome"])
        self._pull = counted("pull_seconds", "Time for which rounds waited for samples")
        self._judge = counted("judge_seconds", "Time that rounds took to judge them")
        self._missing = counted("missing_samples", "Samples that windows lacked, of machines that had others")
        self._untold = counted("untold", "Times that nobody could be told of findings")
        self._machines = gauge("machines", "Machines in the last window")
        self._findings = gauge("findings", "Machines that are unlike their peers now", ["cause"])
        self._success = gauge("last_success_timestamp_seconds", "When the last round that came to a judgement was")
        for outcome in ("judged", "failed"):
            self._rounds.labels(outcome)
        self.ongoing(())

    def judged(self, *, at: float, pull: float, judge: float, machines: int, missing: int) -> None:
        """A round came to a judgement."""
        self._rounds.labels("judged").inc()
        self._pull.inc(pull)
        self._judge.inc(judge)
        self._missing.inc(missing)
        self._machines.set(machines)
        self._success.set(at)

    def failed(self, *, pull: float) -> None:
        """A round came to none."""
        self._rounds.labels("failed").inc()
        self._pull.inc(pull)

    def untold(self) -> None:
        """Somebody could not be told."""
        self._untold.inc()

    def ongoing(self, findings: Iterable[SlowWorker]) -> None:
        """What goes on now."""
        counts = Counter(str(finding.cause) for finding in findings)
        for cause in Cause:
            self._findings.labels(str(cause)).set(counts[str(cause)])

    def serve(self, port: int, address: str) -> Any:
        """Answer scrapes until the process ends; returns the server.

        Raises
        ------
        OSError
            If the port is taken, or the address is none of this host's.
        """
        from prometheus_client import start_http_server

        try:
            return start_http_server(port, address, registry=self.registry)[0]
        except OSError as error:
            raise OSError(f"metrics-address {address}, metrics-port {port}: {error}") from error
