"""A trace's JSON piece by piece: its long list in batches, and the other members of the object."""

from __future__ import annotations

import codecs
import gc
import json
import re
from collections.abc import Iterator
from typing import IO, Any

from dask_efficiency.files.storage import DamagedFileError, decompressed
from dask_efficiency.show.figures import lower_first
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError

#: Bytes of a file read at a time: 256 KiB (a guess: nothing depends on it).
BLOCK = 1 << 18

#: White space of RFC 8259.
_SPACE = " \t\n\r"
_IN_NUMBERS = "0123456789+-.eE"

#: Characters within which a number or literal ends, so that less before the end of a block may be cut.
_MAX_CUT = 32

#: Numbers that are none, as C++ prints them. Kineto has written them for bandwidths of copies that took no time.
_NO_NUMBER = re.compile(r"-?(?:inf|nan)(?=[\s,}\]])", re.IGNORECASE)


def texts(file: IO[bytes], path: str, block: int = BLOCK) -> Iterator[str]:
    """Text of a file in blocks, decompressed, without a byte order mark; invalid UTF-8 is replaced.

    KinetoFileError for a compressed file that is damaged or ends early, FileTooLargeError for one that is a bomb.
    """
    decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
    content = decompressed(file, path)
    try:
        while data := content.read(block):
            yield decode(data)
    except DamagedFileError as error:
        raise KinetoFileError(str(error)) from error
    yield decode(b"", final=True)


class JsonStream:
    """A trace's JSON, decoded from blocks of text: the long list named ``key``, and the other members of the object."""

    def __init__(self, texts: Iterator[str], path: str, key: str = "traceEvents") -> None:
        self.path, self.key = path, key
        #: Other members of the object, as far as the file has been read.
        self.about: dict[str, Any] = {}
        #: Number of values that were ``inf`` or ``nan``, which JSON does not have; they were read as an empty text.
        self.no_numbers = 0
        self._texts, self._text = texts, ""
        #: Position in the text, and characters before it.
        self._at = self._before = 0
        self._ended = self._found = False
        # Floats stay text: instants have more digits than a float holds, and most others are never used.
        # Kineto has written names with control characters in them.
        self._scan = json.JSONDecoder(parse_float=str, strict=False).scan_once  # type: ignore[attr-defined]
        self._scan_about = json.JSONDecoder(strict=False).scan_once  # type: ignore[attr-defined]

    def batches(self) -> Iterator[list[Any]]:
        """The list, in an object or alone, about a block at a time; numbers with a fraction or exponent stay text.

        Raises :class:`KinetoFileError` with the position if the text is not JSON, or has no such list.
        """
        character = self._next()
        if character == "[":
            yield from self._list()
        elif character == "{":
            yield from self._members()
            if not self._found:
                # The file was read to its end, so this is not "ends early".
                where = self._before + self._at
                raise KinetoFileError(f"{self.path}: there is no {self.key} in it, at character {where}")
        else:
            raise self._error("no JSON" if character else "the file is empty")
        if self._next():
            raise self._error("there is more after the end of the JSON")

    def objects(self) -> Iterator[list[Any]]:
        """:meth:`batches`, or objects one after another, as protobuf prints several messages in one file."""
        if self._next() != "{":
            yield from self.batches()
            return
        yield from self._members()
        if self._found:
            return
        yield [self.about]
        while self._next():
            yield [self._value(self._scan)]

    def _members(self) -> Iterator[list[Any]]:
        """Members of the object that begins here: the list is yielded, the others are kept."""
        self._expect("{")
        if self._next() == "}":
            self._at += 1
            return
        while True:
            if self._next() != '"':
                raise self._error("a name in double quotes is expected")
            key = self._value(self._scan_about)
            self._expect(":")
            if key == self.key:
                self._found = True
                yield from self._list()
            else:
                self._next()
                self.about[key] = self._value(self._scan_about)
            if self._expect(",}") == "}":
                return

    def _list(self) -> Iterator[list[Any]]:
        """Batches of the list that begins here."""
        self._expect("[")
        if self._next() == "]":
            self._at += 1
            return
        closed = False
        while not closed:
            if batch := self._many():
                yield batch
                self._more()  # a block mostly ends within an event
            else:
                batch, closed = self._rest_of_block()
                yield batch

    def _many(self) -> list[Any]:
        """All events of the block but the last, decoded as one list; empty where no end of an event is found."""
        text = self._text
        cut = text.rfind("},", self._at)
        while cut > self._at and not text[cut + 2 : cut + 2 + _MAX_CUT].lstrip(_SPACE).startswith("{"):
            cut = text.rfind("},", self._at, cut)
        if cut <= self._at:
            return []
        # Decoded JSON has no cycles, and looking for them would take a quarter of the time.
        collects = gc.isenabled()
        gc.disable()
        try:
            batch, end = self._scan(f"[{text[self._at : cut + 1]}]", 0)
        except (ValueError, StopIteration, RecursionError):
            return []  # cut within an event, or damaged: decoding one by one will tell
        finally:
            if collects:
                gc.enable()
        if end != cut + 3 - self._at:
            return []
        self._at = cut + 2
        return batch  # type: ignore[no-any-return]  # it began with a bracket

    def _rest_of_block(self) -> tuple[list[Any], bool]:
        """Events one by one until the block or the list ends; True if the list did."""
        batch, block = [], self._before + len(self._text)
        while True:
            self._next()
            batch.append(self._value(self._scan))
            if self._expect(",]") == "]":
                return batch, True
            if self._before + self._at >= block:
                return batch, False

    def _value(self, scan: Any) -> Any:
        """The value that begins here; reads as many blocks as it needs."""
        while True:
            try:
                value, end = scan(self._text, self._at)
            except StopIteration as stopped:
                self._read_on_or_fail("expecting value", stopped.value)
            except json.JSONDecodeError as error:
                self._read_on_or_fail(lower_first(error.msg).removesuffix(" at"), error.pos)
            except (RecursionError, ValueError) as error:  # nested too deep, or a number of thousands of digits
                raise self._error(f"a value cannot be read: {error}") from error
            else:
                place = self._before + end
                # the end of the text may cut a number before its point or exponent
                if self._text[end : end + _MAX_CUT].strip(_IN_NUMBERS) or not self._more():
                    self._at = place - self._before
                    return value

    def _read_on_or_fail(self, message: str, at: int) -> None:
        if no_number := _NO_NUMBER.match(self._text, at):
            self.no_numbers += 1
            self._text = self._text[:at] + '""'.ljust(len(no_number[0])) + self._text[no_number.end() :]
            return
        open_string = message.startswith("unterminated string")
        far = not open_string and at <= len(self._text) - _MAX_CUT
        place = self._before + at
        if far or not self._more(double=True):
            self._at = len(self._text) if open_string else place - self._before
            raise self._error(message)

    def _expect(self, characters: str) -> str:
        character = self._next()
        if not character or character not in characters:
            raise self._error(" or ".join(characters) + " is expected")
        self._at += 1
        return character

    def _next(self) -> str:
        """Step to the next character that is no space and return it; empty at the end."""
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
        """Read on. ``double`` doubles the text, so that a value of many blocks is not scanned again for each."""
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
