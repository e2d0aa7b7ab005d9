"""Client of Prometheus' HTTP API: range queries whose series are parsed as they arrive, one at a time."""

from __future__ import annotations

import codecs
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.fleet.prometheus.http_config import AnswerTooSlowError, HttpConfig

Result = TypeVar("Result")

#: Attempts at a request that fails through no fault of its own, and seconds until the second; they double.
ATTEMPTS = 4
BACKOFF_SECONDS = 0.5
#: HTTP statuses of a server, or a proxy, that is busy or restarting.
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Most bytes read of an answer without series.
_MAX_BYTES = 1 << 26
#: Characters that are quoted of what a server says.
_QUOTED = 400


class PrometheusAwayError(OSError):
    """Prometheus did not answer, or not in time."""


class NotPrometheusError(ValueError):
    """Something else answers, or asks for a password."""


class QueryRefusedError(ValueError):
    """Prometheus refused a query; the kind is ``bad_data`` or ``execution``, empty if it gave none."""

    def __init__(self, kind: str, wrong: str) -> None:
        super().__init__(wrong)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class PrometheusClient:
    """Client of a Prometheus, or of anything with its API, by its URL of HTTP up to ``/api/v1``."""

    url: str
    config: HttpConfig = field(default_factory=HttpConfig)
    #: Seconds for which a server may send nothing, and may evaluate; it has twice as long for
    #: all of an answer.
    timeout_seconds: float = 30.0
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("no URL of a Prometheus: expected http:// or https:// and a host, as in http://host:9090")
        if parts.username is not None or parts.query or parts.fragment:
            expected = "a URL without password, query and fragment; passwords are in a file of HTTP options"
            raise ValueError(f"{parts.hostname}: expected {expected}")

    def range_query(
        self, query: str, *, start: float, stop: float, step_seconds: float, take: Callable[[Answered], None]
    ) -> None:
        """Pass each series of the answer to a function as it arrives; more than once if the answer breaks off."""
        asked = {
            "query": query,
            "start": f"{start:.3f}",
            "end": f"{stop:.3f}",
            "step": f"{step_seconds:.3f}",
            "timeout": f"{self.timeout_seconds:.3f}",  # as durations, Prometheus takes whole ones only
        }

        def answered(response: HTTPResponse) -> None:
            for series in matrix(response):
                take(series)

        self._persistently("query_range", asked, answered)

    def metric_names(self) -> list[str]:
        """Names of all metrics."""
        found = self._persistently("label/__name__/values", {}, _content)
        names = found.get("data") or []
        if not isinstance(names, list):
            raise PrometheusAwayError(f"no Prometheus answers at {self.url}: expected names, got {str(names)[:200]}")
        return [str(name) for name in names]

    def _persistently(self, what: str, asked: Mapping[str, str], use: Callable[[HTTPResponse], Result]) -> Result:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with closing(self._open(what, asked)) as response:
                    return use(response)
            except (OSError, HTTPException, AnswerError) as error:
                if attempt == ATTEMPTS or _is_slow(error):
                    raise PrometheusAwayError(f"no Prometheus answers at {self.url}: {_why(error)}") from error
            self.sleep(BACKOFF_SECONDS * 2 ** (attempt - 1))
        raise AssertionError

    def _open(self, what: str, asked: Mapping[str, str]) -> HTTPResponse:
        # As a form, because queries may be longer than URLs.
        data = urllib.parse.urlencode(asked).encode() if asked else None
        headers = {"Accept": "application/json", **self.config.sent_headers()}
        request = urllib.request.Request(f"{self.url.rstrip('/')}/api/v1/{what}", data, headers)
        try:
            response: HTTPResponse = self.config.opener().open(request, timeout=self.timeout_seconds)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from error
        return response


def _refusal(error: urllib.error.HTTPError) -> Exception:
    content = error.read(_MAX_BYTES)
    try:
        answer = json.loads(content)
        kind, wrong = str(answer["errorType"]), str(answer["error"])[:_QUOTED]
        refusal: Exception = QueryRefusedError(kind, wrong)
    except (ValueError, KeyError, TypeError):
        text = " ".join(content.decode("utf-8", "replace").split())[:200]
        wrong = f"HTTP status {error.code} {str(error.reason)[:_QUOTED]}: {text}".rstrip(": ")
        refusal = NotPrometheusError(f"{error.url[:200]}: {wrong}; expected a Prometheus")
    return OSError(wrong) if error.code in _BUSY else refusal


def _content(response: HTTPResponse) -> dict[str, Any]:
    try:
        content = json.loads(response.read(_MAX_BYTES))
    except ValueError as error:
        raise AnswerError(f"expected JSON: {error}") from error
    if not isinstance(content, dict):
        raise AnswerError(f"expected an object, got {str(content)[:200]}")
    return content


def _is_slow(error: Exception) -> bool:
    """True for an answer that came too slowly, and would take as long again."""
    return isinstance(getattr(error, "reason", error), AnswerTooSlowError)


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return " ".join(str(reason)[:_QUOTED].split()) or type(error).__name__


def slices(start: float, stop: float, step_seconds: float, *, steps: int) -> Iterator[tuple[float, float]]:
    """First and last instant, both included, of each part of a range of time with at most so many steps."""
    count = round((stop - start) / step_seconds) + 1
    for first in range(0, count, steps):
        last = min(first + steps, count) - 1
        yield start + first * step_seconds, start + last * step_seconds


#: Bytes read at a time; if one series is longer, twice as much, and so on.
_CHUNK = 1 << 20
#: Most bytes of a series. One of 11,000 points, the most that Prometheus answers, takes a third of a megabyte.
MAX_SERIES_BYTES = 1 << 26

_DECODER = json.JSONDecoder()


class AnswerError(ValueError):
    """Not an answer of Prometheus to a range query."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Series: labels, times in seconds since the epoch, and values."""

    labels: dict[str, str]
    at: NDArray[np.float64]
    values: NDArray[np.float32]


#: Text of an answer up to its first series, between two of them, and after the last.
_BEGIN = re.compile(r'.*?"result"\s*:\s*\[\s*(\]|(?=\{))', re.DOTALL)
_NEXT = re.compile(r"\s*(,\s*(?=\{)|\])")


def matrix(source: BinaryIO | HTTPResponse) -> Iterator[Answered]:
    """Series of an answer to a range query, one after the other; AnswerError if it is none, or ends too early."""
    text = _Text(source)
    sign = text.past(_BEGIN)
    while sign != "]":
        yield _answered(text.value())
        sign = text.past(_NEXT)


def _answered(content: Any) -> Answered:
    try:
        points = content.get("values", ())
        labels = {str(name): str(value) for name, value in content["metric"].items()}
        at = np.array([point[0] for point in points], np.float64)
        with np.errstate(over="ignore"):  # what is too large is infinite
            values = np.array([float(point[1]) for point in points], np.float32)
        if at.ndim != 1 or not np.isfinite(at).all():
            raise ValueError("expected instants")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise AnswerError(f"expected a series of a range query, got {str(content)[:200]!r}") from error
    return Answered(labels, at, values)


class _Text:
    """Text that arrives in pieces, of which only the unread part is kept."""

    def __init__(self, source: BinaryIO | HTTPResponse) -> None:
        self._source = source
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        self._at = 0

    def _more(self, amount: int = _CHUNK) -> bool:
        content = self._source.read(amount)
        self._text = self._text[self._at :] + self._decode(content, final=not content)
        self._at = 0
        return bool(content)

    def past(self, pattern: re.Pattern[str]) -> str:
        """Skip what comes next, and return the pattern's group of it."""
        while (found := pattern.match(self._text, self._at)) is None:
            if len(self._text) - self._at > _CHUNK or not self._more():
                raise AnswerError(f"the answer ends too early, or is no JSON: {self._text[self._at :][:200]!r}")
        self._at = found.end()
        return found[1]

    def value(self) -> Any:
        """Read a JSON object."""
        amount = _CHUNK
        while True:
            try:
                content, self._at = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > MAX_SERIES_BYTES or not self._more(amount):
                    raise AnswerError(f"the answer ends too early, or is no JSON: {error}") from error
                amount *= 2
            except (RecursionError, ValueError) as error:  # nested too deep, or a number of thousands of digits
                raise AnswerError(f"a value cannot be read: {error}") from error
            else:
                return content
