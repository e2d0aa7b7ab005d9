"""Receivers of a watch's findings: a webhook, a command (never a shell), and metrics of the watch for Prometheus."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.prometheus.http_config import HttpConfig

#: Seconds that a receiver may take; later it is tried again in the next round.
TIMEOUT_SECONDS = 30.0
#: Most bytes quoted of a failed command's error output.
_QUOTED = 300
#: Characters that :mod:`http.client` refuses to send.
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f]")


class NotReceivedError(OSError):
    """A receiver was not reached, and is to be tried again."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Posts JSON to a URL of HTTP, which has no password and no control characters."""

    url: str
    config: HttpConfig = field(default_factory=HttpConfig)
    timeout_seconds: float = TIMEOUT_SECONDS
    #: Waits for the answer; an endless one holds one thread only.
    _waiting: list[threading.Thread] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            expected = "http:// or https:// and a host, as in http://host:5001/drain"
            raise ValueError(f"no URL of a webhook: expected {expected}")
        if parts.username is not None or _NOT_IN_URLS.search(self.url):
            wrong = "expected a URL of a webhook without user, password, spaces and control characters"
            raise ValueError(f"{parts.hostname}: {wrong}")

    @property
    def _shown(self) -> str:
        """URL without path and query, where webhooks often have their secret."""
        parts = urllib.parse.urlsplit(self.url)
        return f"the webhook {parts.scheme}://{parts.hostname}/..."

    def tell(self, body: dict[str, Any], /) -> None:
        """Post the body of a webhook, and wait for the first byte of the answer, within the timeout in all."""
        if any(thread.is_alive() for thread in self._waiting):
            raise NotReceivedError(f"{self._shown} was not reached: it has not yet answered the last message")
        failed: list[Exception] = []

        def post() -> None:
            try:
                self._post(body)
            except Exception as error:
                failed.append(error)

        # Sockets have a timeout for each read, and the lookup of host names has none.
        thread = threading.Thread(target=post, name="dask-efficiency-webhook", daemon=True)
        self._waiting[:] = [thread]
        thread.start()
        thread.join(self.timeout_seconds)
        if thread.is_alive():
            raise NotReceivedError(f"{self._shown} timed out after {self.timeout_seconds:g} s")
        if failed:
            raise failed[0]

    def _post(self, body: dict[str, Any]) -> None:
        try:
            headers = {"Content-Type": "application/json", **self.config.sent_headers()}
            request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
            with self.config.opener().open(request, timeout=self.timeout_seconds) as response:
                response.read(1)
        except OSError as error:
            raise NotReceivedError(f"{self._shown} was not reached: {error}") from error
        except (ValueError, http.client.HTTPException) as error:  # these quote paths and headers
            raise NotReceivedError(f"{self._shown} was not reached: {type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class Command:
    """Runs a program with arguments, which reads JSON from its standard input."""

    arguments: Sequence[str]
    timeout_seconds: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        if not self.arguments or shutil.which(self.arguments[0]) is None:
            raise ValueError(f"there is no program {(self.arguments or [''])[0][:200]!r} to run")

    @classmethod
    def of(cls, line: str) -> Command:
        """Command from a line of words, quoted as for a shell; no shell sees it."""
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise ValueError(f"the command cannot be taken as words: {error}") from error
        return cls(tuple(words))

    def tell(self, body: dict[str, Any], /) -> None:
        """Run it, and wait for its end; one that takes too long is killed with its children."""
        with contextlib.ExitStack() as opened:
            try:
                # Files, because a child that it leaves behind would keep pipes open.
                sent, written = (opened.enter_context(tempfile.TemporaryFile()) for _ in range(2))
                sent.write(json.dumps(body).encode())
                sent.seek(0)
                files: dict[str, Any] = {"stdin": sent, "stdout": subprocess.DEVNULL, "stderr": written}
                process = subprocess.Popen(list(self.arguments), start_new_session=True, **files)
            except OSError as error:
                raise NotReceivedError(f"{self.arguments[0]} was not reached: {error}") from error
            try:
                status = process.wait(self.timeout_seconds)
            except subprocess.TimeoutExpired as error:  # which quotes all arguments
                raise NotReceivedError(f"{self.arguments[0]} timed out after {self.timeout_seconds:g} s") from error
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if status:
                written.seek(max(written.seek(0, os.SEEK_END) - _QUOTED, 0))
                errors = " ".join(written.read(_QUOTED).decode("utf-8", "replace").split())
                raise NotReceivedError(f"{self.arguments[0]} ended with status {status}: {errors}")


#: Prefix of the metrics' names.
PREFIX = "dask_efficiency_watch"


class OwnMetrics:
    """Counters and gauges of a watch; they need prometheus_client, which the extra ``prometheus`` has."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Gauge
        from prometheus_client import Counter as Counted

        self.registry = CollectorRegistry()

        def made(kind: Any, name: str, meaning: str, *labels: str) -> Any:
            return kind(f"{PREFIX}_{name}", meaning, labels, registry=self.registry)

        self._rounds = made(Counted, "rounds", "Rounds, by whether they ended with a verdict", "outcome")
        self._pull = made(Counted, "pull_seconds", "Time for which rounds waited for samples")
        self._judge = made(Counted, "judge_seconds", "Time that rounds took to judge them")
        of_others = "Samples that were missing in windows, of machines that had others"
        self._missing = made(Counted, "missing_samples", of_others)
        self._untold = made(Counted, "untold", "Times that a receiver of findings was not reached")
        of_errors = "Machines, metrics and events that rounds went on without, as the code failed on them"
        self._left_out = made(Counted, "left_out", of_errors, "about")
        self._machines = made(Gauge, "machines", "Machines in the last window")
        self._findings = made(Gauge, "findings", "Machines that are unlike their peers now", "cause")
        of_bound = "1 while so many machines leave their past that only the furthest are named, else 0"
        self._bounded = made(Gauge, "bounded", of_bound)
        self._success = made(Gauge, "last_success_timestamp_seconds", "When the last round with a verdict was")
        for outcome in ("judged", "failed"):
            self._rounds.labels(outcome)
        for about in ("machine", "metric", "event"):
            self._left_out.labels(about)
        self._set_findings(())

    def judged(
        self, findings: Iterable[SlowWorker], *, at: float, pull: float, judge: float, machines: int, missing: int
    ) -> None:
        """Count a round with a verdict, after which these findings go on."""
        self._set_findings(findings)
        self._rounds.labels("judged").inc()
        self._pull.inc(pull)
        self._judge.inc(judge)
        self._missing.inc(missing)
        self._machines.set(machines)
        self._success.set(at)

    def failed(self, *, pull: float) -> None:
        """Count a round without a verdict."""
        self._rounds.labels("failed").inc()
        self._pull.inc(pull)

    def left_out(self, about: str, count: int) -> None:
        """Count machines, metrics or events that a round went on without."""
        self._left_out.labels(about).inc(count)

    def bounded(self, is_bounded: bool) -> None:
        """Set whether alarms are bounded now."""
        self._bounded.set(is_bounded)

    def not_reached(self) -> None:
        """Count a receiver that was not reached."""
        self._untold.inc()

    def _set_findings(self, findings: Iterable[SlowWorker]) -> None:
        counts = Counter(str(finding.cause) for finding in findings)
        for cause in Cause:
            self._findings.labels(str(cause)).set(counts[str(cause)])

    def serve(self, port: int, address: str) -> Any:
        """Answer scrapes until the process ends; returns the server."""
        from prometheus_client import start_http_server

        try:
            return start_http_server(port, address, registry=self.registry)[0]
        except OSError as error:
            raise OSError(f"metrics-address {address}, metrics-port {port}: {error}") from error
