"""Who is told of findings: a webhook, or a command; never a shell."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dask_efficiency.fleet.prometheus.http_config import HttpConfig

#: A receiver that takes longer is told again in the next round.
TIMEOUT_SECONDS = 30.0

#: Bytes of what a command that fails wrote, at most, that are quoted.
_QUOTED = 300

#: Characters that :mod:`http.client` refuses to send.
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f]")


class NotReceivedError(OSError):
    """Who should be told was not, and is to be told again."""


class Receiver(Protocol):
    """Is told of findings."""

    def tell(self, body: dict[str, Any], /) -> None:
        """Take the body of a webhook, as Alertmanager has it. Raises NotReceivedError."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Posts JSON to a URL.

    Raises
    ------
    ValueError
        If the URL is none of HTTP, or has a password or control characters.
    """

    url: str
    config: HttpConfig = field(default_factory=HttpConfig)
    timeout_seconds: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                "no URL of a webhook: expected http:// or https:// and a host, as in http://host:5001/drain"
            )
        if parts.username is not None or _NOT_IN_URLS.search(self.url):
            raise ValueError(
                f"{parts.hostname}: expected a URL of a webhook without user, password, spaces and control characters"
            )

    def tell(self, body: dict[str, Any], /) -> None:
        """Post it."""
        headers = {"Content-Type": "application/json", **self.config.sent_headers()}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
        try:
            with self.config.opener().open(request, timeout=self.timeout_seconds) as response:
                response.read(1)
        except OSError as error:
            raise NotReceivedError(f"the webhook {_without_secrets(self.url)} was not told: {error}") from error
        except (ValueError, http.client.HTTPException) as error:  # these quote paths and headers
            why = type(error).__name__
            raise NotReceivedError(f"the webhook {_without_secrets(self.url)} was not told: {why}") from error


@dataclass(frozen=True, slots=True)
class Command:
    """Runs a program with arguments, which reads JSON from its standard input.

    Raises
    ------
    ValueError
        If there is no such program.
    """

    arguments: Sequence[str]
    timeout_seconds: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        if not self.arguments or shutil.which(self.arguments[0]) is None:
            raise ValueError(f"there is no program {(self.arguments or [''])[0][:200]!r} to run")

    @classmethod
    def of(cls, line: str) -> Command:
        """From a line of words, quoted as for a shell; no shell sees it."""
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise ValueError(f"the command cannot be taken as words: {error}") from error
        return cls(tuple(words))

    def tell(self, body: dict[str, Any], /) -> None:
        """Run it, and wait for its end."""
        try:
            done = subprocess.run(
                list(self.arguments),
                input=json.dumps(body).encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=self.timeout_seconds,
                check=False,
            )
        except OSError as error:
            raise NotReceivedError(f"{self.arguments[0]} was not told: {error}") from error
        except subprocess.TimeoutExpired as error:  # which quotes all arguments
            raise NotReceivedError(f"{self.arguments[0]} timed out after {self.timeout_seconds:g} s") from error
        if done.returncode:
            said = " ".join(done.stderr.decode("utf-8", "replace").split())[-_QUOTED:]
            raise NotReceivedError(f"{self.arguments[0]} ended with status {done.returncode}: {said}")


def _without_secrets(url: str) -> str:
    """Webhooks often have their secret in path or query."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}/..."
