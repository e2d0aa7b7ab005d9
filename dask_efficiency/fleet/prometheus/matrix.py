"""Series out of Prometheus' JSON while it comes: one of them is held at a time, however long the answer is."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

#: Read at a time; if one series is longer, twice as much, and so on.
_CHUNK = 1 << 20

#: A series of 11,000 points, the most that Prometheus answers, takes a third of a megabyte.
MAX_SERIES_BYTES = 1 << 26

_DECODER = json.JSONDecoder()


class AnswerError(ValueError):
    """What came is not an answer of Prometheus' to a range query."""


class Readable(Protocol):
    """Where bytes come from."""

    def read(self, amount: int, /) -> bytes:
        """At most so many of them; none at the end."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A series: its labels, times in seconds since the epoch, and values."""

    labels: dict[str, str]
    at: NDArray[np.float64]
    values: NDArray[np.float32]


def matrix(source: Readable) -> Iterator[Answered]:
    """The series of an answer to a range query, one after the other.

    Raises
    ------
    AnswerError
        If it is none, or has an end too early.
    """
    text = _Text(source)
    text.skip_past('"result"')
    text.expect(":")
    text.expect("[")
    if text.next_is("]"):
        return
    while True:
        yield _answered(text.value())
        if not text.next_is(","):
            break
    text.expect("]")


def _answered(content: Any) -> Answered:
    try:
        points = content.get("values", ())
        labels = {str(name): str(value) for name, value in content["metric"].items()}
        at = np.array([point[0] for point in points], np.float64)
        with np.errstate(over="ignore"):  # what is too large is infinite
            values = np.array([float(point[1]) for point in points], np.float32)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise AnswerError(f"expected a series of a range query, got {str(content)[:200]!r}") from error
    return Answered(labels, at, values)


class _Text:
    """Text that comes in pieces, of which only what is not yet read is kept."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        self._at = 0

    def _more(self, amount: int = _CHUNK) -> bool:
        """Whether something came."""
        content = self._source.read(amount)
        self._text = self._text[self._at :] + self._decode(content, final=not content)
        self._at = 0
        return bool(content)

    def skip_past(self, word: str) -> None:
        """Go on behind a word near the beginning."""
        while (found := self._text.find(word)) < 0:
            if len(self._text) > _CHUNK or not self._more():
                raise AnswerError(f"expected JSON with a result, got {self._text[:200]!r}")
        self._at = found + len(word)

    def next_is(self, sign: str) -> bool:
        """Whether that is what comes next, which is then read."""
        while True:
            while self._at < len(self._text) and self._text[self._at].isspace():
                self._at += 1
            if self._at < len(self._text):
                break
            if not self._more():
                raise AnswerError("the answer ends too early")
        if self._text[self._at] != sign:
            return False
        self._at += 1
        return True

    def expect(self, sign: str) -> None:
        """Read a sign."""
        if not self.next_is(sign):
            raise AnswerError(f"expected {sign!r}, got {self._text[self._at : self._at + 200]!r}")

    def value(self) -> Any:
        """Read a JSON object."""
        self.expect("{")
        self._at -= 1
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
