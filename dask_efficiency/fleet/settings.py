"""WatchSettings: the settings of a watch, read from a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dask_efficiency.files.text_files import YamlSection, composed, read_text
from dask_efficiency.fleet.outliers.departures import CONTINUITY_SECONDS
from dask_efficiency.fleet.prometheus.http_config import HttpConfig, read_http_config
from dask_efficiency.fleet.prometheus.receivers import Command, Webhook
from dask_efficiency.fleet.rounds.metrics_file import duration_of
from dask_efficiency.straggler.retirements import RETIRE_SHARE, most_retired


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """Settings of a watch; the defaults hold where a file does not mention them."""

    #: Seconds between two rounds; length of the judged window; and of the past before it.
    every: float = 480.0
    window: float = 900.0
    history: float = 3600.0
    #: Seconds for which a machine must be unlike others.
    continuity: float = CONTINUITY_SECONDS
    #: File of a trained detector; empty for :func:`~dask_efficiency.fleet.find_outliers`.
    model: str = ""
    #: Passwords and certificates for Prometheus.
    http_config: HttpConfig = field(default_factory=HttpConfig)
    #: Receivers of findings.
    webhook: Webhook | None = None
    command: Command | None = None
    #: Where the watch serves metrics of itself; port 0 for nowhere. They name no machine, so by default they are on all
    #: addresses of the host, as those of Prometheus' exporters are.
    metrics_port: int = 0
    metrics_address: str = "0.0.0.0"
    #: Largest share of the workers retired within a day, and seconds between two retirements.
    retire_share: float = RETIRE_SHARE
    retire_every: float = 1800.0

    @property
    def receivers(self) -> tuple[Webhook | Command, ...]:
        """All receivers of findings."""
        return tuple(one for one in (self.webhook, self.command) if one is not None)


def read_settings(path: str | os.PathLike[str]) -> WatchSettings:
    """Read a file of settings; file names in it are relative to it. Raises TextFileError with the line, and OSError."""
    folder = Path(path).parent
    readers: dict[str, Callable[[str], Any]] = {
        "every": duration_of,
        "window": duration_of,
        "history": duration_of,
        "continuity": duration_of,
        "model": lambda text: str(folder / _given(text)),
        "http-config": lambda text: read_http_config(str(folder / _given(text))),
        "webhook": Webhook,
        "command": Command.of,
        "metrics-port": _port,
        "metrics-address": _address,
        "retire-share": _share,
        "retire-every": duration_of,
    }
    section = YamlSection(composed(read_text(path), path), path, set(readers))
    if "metrics-address" in section and "metrics-port" not in section:
        raise section.error("metrics-address", "'metrics-address' is given without 'metrics-port'")
    given: dict[str, Any] = {name: section.get(name, read, None) for name, read in readers.items() if name in section}
    return WatchSettings(**{name.replace("-", "_"): value for name, value in given.items()})


def _given(text: str) -> str:
    if not text:
        raise ValueError("expected the name of a file")
    return text


def _port(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= 65_535):
        raise ValueError(f"expected a port from 1 to 65535, got {text[:80]!r}")
    return int(text)


def _address(text: str) -> str:
    if not text:
        raise ValueError("expected an address of this host, such as 127.0.0.1 or ::1; 0.0.0.0 is all of them")
    return text


def _share(text: str) -> float:
    try:
        most_retired(0, share := float(text))
    except ValueError:
        raise ValueError(f"expected a share above 0 and below 1 such as 0.25, got {text[:80]!r}") from None
    return share
