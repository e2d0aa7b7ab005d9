"""A trace's JSON piece by piece: events in batches, and what stands beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dask_efficiency.kineto.errors import KinetoFileError

#: Between tokens, as RFC 8259 has it.
_SPACE = " \t\n\r"

_IN_NUMBERS = "0123456789+-.eE"

#: A number or a literal that the end of a block cuts is at most so long before it is plain that more is needed.
_MAX_CUT = 32


class Pieces:
    """What a trace's text says, in the order of the file.

    Parameters
    ----------
    texts
        The text in blocks.
    path
        For messages.
    """

    def __init__(self, texts: Iterator[str], path: str) -> None:
        self.path = path
        #: What stands beside the events, as far as the file has been read.
        self.about: dict[str, Any] = {}
        self._texts = texts
        self._text = ""
        self._at = 0
        self._before = 0  # characters before those in _text
        self._ended = False
        # Floats stay text: those of instants have more digits than a float holds, and most others are not looked at.
        # Kineto has written names with control characters in them.
        self._scan = json.JSONDecoder(parse_float=str, strict=False).scan_once  # type: ignore[attr-defined]
        self._scan_about = json.JSONDecoder(strict=False).scan_once  # type: ignore[attr-defined]

    def batches(self) -> Iterator[list[Any]]:
        """The events, about a block of the file at a time; numbers with a fraction or exponent as text.

        Raises
        ------
        KinetoFileError
            If the text is not JSON, or has no ``traceEvents``; it says where.
        """
        character = self._next()
        if character == "[":
            self._at += 1
            yield from self._events()
        elif character == "{":
            self._at += 1
            yield from self._members()
        else:
            raise self._error("no JSON" if character else "the file is empty")
        if self._next():
            raise self._error("there is more after the end of the JSON")

    def _members(self) -> Iterator[list[Any]]:
        found = False
        if self._next() == "}":
            self._at += 1
        else:
            while True:
                if self._next() != '"':
                    raise self._error("a name in double quotes is expected")
                key = self._value(self._scan_about)
                self._expect(":")
                if key == "traceEvents":
                    found = True
                    self._expect("[")
                    yield from self._events()
                else:
                    self._next()
                    self.about[key] = self._value(self._scan_about)
                if self._expect(",}") == "}":
                    break
        if not found:
            raise self._error("no traceEvents: not a trace of Kineto's")

    def _events(self) -> Iterator[list[Any]]:
        """Of the list that has just been opened, up to its end."""
        if self._next() == "]":
            self._at += 1
            return
        while True:
            if batch := self._many():
                yield batch
            batch, closed = self._rest_of_block()
            yield batch
            if closed:
                return

    def _many(self) -> list[Any]:
        """All events of the block but the last, read as one list; none where its end cannot be told by its look."""
        text = self._text
        cut = text.rfind("},", self._at)
        while cut > self._at and not text[cut + 2 : cut + 2 + _MAX_CUT].lstrip(_SPACE).startswith("{"):
            cut = text.rfind("},", self._at, cut)
        if cut <= self._at:
            return []
        try:
            batch, end = self._scan(f"[{text[self._at : cut + 1]}]", 0)
        except (ValueError, StopIteration, RecursionError):
            return []  # the cut was within an event, or something is wrong: one by one it will be seen
        if end != cut + 3 - self._at:
            return []
        self._at = cut + 2
        return batch  # type: ignore[no-any-return]  # a list, as it began with a bracket

    def _rest_of_block(self) -> tuple[list[Any], bool]:
        """Events one by one until the block is over or the list closed, and which of these it was."""
        batch, block = [], self._before + len(self._text)
        while True:
            self._next()
            batch.append(self._value(self._scan))
            if self._expect(",]") == "]":
                return batch, True
            if self._before + self._at >= block:
                return batch, False

    def _value(self, scan: Any) -> Any:
        """The value that begins here; as many blocks as it needs are read."""
        while True:
            try:
                value, end = scan(self._text, self._at)
            except StopIteration as stopped:
                self._read_on_or_fail("expecting value", stopped.value)
            except json.JSONDecodeError as error:
                self._read_on_or_fail(error.msg[0].lower() + error.msg[1:].removesuffix(" at"), error.pos)
            except (RecursionError, ValueError) as error:  # nested too deep, or a number of thousands of digits
                raise self._error(f"a value cannot be read: {error}") from error
            else:
                place = self._before + end
                # what looks like the end of a number may be followed by its point or exponent
                if self._text[end : end + _MAX_CUT].strip(_IN_NUMBERS) or not self._more():
                    self._at = place - self._before
                    return value

    def _read_on_or_fail(self, message: str, at: int) -> None:
        open_string = message.startswith("unterminated string")
        far = not open_string and at <= len(self._text) - _MAX_CUT
        place = self._before + at
        if far or not self._more(double=True):
            self._at = len(self._text) if open_string else place - self._before
            raise self._error(message)

    def _expect(self, characters: str) -> str:
        found = self._next()
        if not found or found not in characters:
            raise self._error(" or ".join(characters) + " is expected")
        self._at += 1
        return found

    def _next(self) -> str:
        """The next character that is no space, which is stepped up to; empty at the end."""
        while True:
            text, at = self._text, self._at
            while at < len(text) and text[at] in _SPACE:
                at += 1
            self._at = at
            if at < len(text):
                return text[at]
            if not self._more():
                return ""

    def _more(self, double: bool = False) -> bool:
        """Read on; by as much as there is, so that what spans many blocks is not scanned once for each."""
        kept = self._text[self._at :]
        parts, read = [kept], 0
        for text in self._texts:
            parts.append(text)
            read += len(text)
            if read and (not double or read >= len(kept)):
                break
        else:
            self._ended = True
        self._before += self._at
        self._text, self._at = "".join(parts), 0
        return read > 0

    def _error(self, message: str) -> KinetoFileError:
        if self._at >= len(self._text) and self._ended and self._before + self._at:
            message = f"the file ends early: {message}"
        return KinetoFileError(f"{self.path}: {message}, at character {self._before + self._at}")
