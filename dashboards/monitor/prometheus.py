"""A Prometheus server of one's own, and our rules with windows so short that one sees them change."""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

RULES = Path(__file__).parent.parent / "prometheus"

#: Prometheus's own port, taken if it is free.
PORT = 9090

SCRAPE_INTERVAL = "2s"

#: Every duration in the rules, and what it is here.
SHORT = {"1h": "2m", "15m": "30s", "10m": "20s", "5m": "30s", "2m": "10s", "1m": "5s"}

_DURATION = re.compile(rf"(?<!\d)({'|'.join(SHORT)})\b")


def shorten(text: str) -> str:
    """Rules with other durations: in windows, in ``for``, in names and in sentences."""
    return _DURATION.sub(lambda found: SHORT[found[0]], text)


def configure(folder: Path, target: str) -> Path:
    """Write the rules and a configuration for one target (``host:port``); the configuration's path."""
    import yaml

    config = yaml.safe_load((RULES / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL}
    (job,) = config["scrape_configs"]
    job["static_configs"] = [{"targets": [target], "labels": {"cluster": "demo"}}]
    for name in config["rule_files"]:
        (folder / name).write_text(shorten((RULES / name).read_text(encoding="utf-8")), encoding="utf-8")
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


class PrometheusError(RuntimeError):
    """Prometheus does not run; the message has what it said last."""


class Server:
    """A running Prometheus that listens at a port of this machine only, and the file that its output goes to."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._process = process
        self._log = log

    def check(self) -> None:
        """Raise :class:`PrometheusError` if it has ended."""
        if self._process.poll() is not None:
            said = self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise PrometheusError(f"Prometheus ended with status {self._process.returncode}:\n{said}")

    def wait_until_ready(self, *, seconds: float = 60) -> None:
        """Return when it answers queries."""
        until = time.monotonic() + seconds
        while True:
            self.check()
            try:
                urllib.request.urlopen(f"{self.url}/-/ready", timeout=2).close()
                return
            except OSError as error:
                if time.monotonic() > until:
                    raise PrometheusError(f"Prometheus is not ready after {seconds} s: {error}") from None
            time.sleep(0.2)

    def firing(self) -> dict[str, str]:
        """Names of the alerts that fire, with the description of each."""
        self.check()
        with urllib.request.urlopen(f"{self.url}/api/v1/alerts", timeout=10) as answer:
            alerts: list[dict[str, Any]] = json.load(answer)["data"]["alerts"]
        return {
            alert["labels"]["alertname"]: alert["annotations"]["description"]
            for alert in alerts
            if alert["state"] == "firing"
        }

    def graphs(self, *panels: tuple[str, bool]) -> str:
        """Link to graphs of expressions, each of them stacked or not."""
        fields = {}
        for number, (expression, stacked) in enumerate(panels):
            panel = {"expr": expression, "tab": 0, "stacked": int(stacked), "range_input": "5m"}
            fields.update({f"g{number}.{name}": value for name, value in panel.items()})
        return f"{self.url}/graph?{urlencode(fields, safe=':()')}"

    def alerts(self) -> str:
        """Link to the page of the alerts; Debian's package has only the classic one."""
        try:
            urllib.request.urlopen(f"{self.url}/alerts", timeout=10).close()
        except urllib.error.HTTPError:
            return f"{self.url}/classic/alerts"
        return f"{self.url}/alerts"


@contextmanager
def scraping(target: str) -> Iterator[Server]:
    """A Prometheus that scrapes one target (``host:port``) with short rules, until the block is left."""
    with (
        tempfile.TemporaryDirectory(prefix="dask-efficiency-monitor-") as folder,
        running(configure(Path(folder), target), wish=PORT) as server,
    ):
        yield server


@contextmanager
def running(config: Path, *, wish: int = 0) -> Iterator[Server]:
    """A Prometheus that keeps its data and its log beside its configuration, until the block is left.

    It takes the port that is wished for if that is free, and else any.
    """
    port, log = free_port(wish), config.parent / "log"
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={config.parent / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with log.open("wb") as output:
        # In a session of its own, for a terminal's Ctrl-C goes to the whole group, and it is to end last.
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        server = Server(process, port, log)
        server.wait_until_ready()
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port(wish: int = 0) -> int:
    """A free port, the one wished for if possible; else one below those that Linux gives to whoever asks for any."""
    while True:
        port, wish = wish or random.randrange(15_000, 32_000), 0
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Prometheus does
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free on 127.0.0.1")
