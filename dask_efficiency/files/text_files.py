"""Files that people write: their text, and an error that names the line."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

#: A description of a cluster of 10,000 hosts, one a line, is a tenth of it.
MAX_BYTES = 10_000_000


class TextFileError(ValueError):
    """A file that people wrote and that cannot be understood.

    Parameters
    ----------
    path, line
        Where; lines count from 1, and 0 is the file as a whole.
    wrong
        What is there, and what was expected.
    """

    def __init__(self, path: str | os.PathLike[str], line: int, wrong: str) -> None:
        place = f"{os.fspath(path)}, line {line}" if line else os.fspath(path)
        super().__init__(f"{place}: {wrong}")
        self.path = os.fspath(path)
        self.line = line
        self.wrong = wrong


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file.

    Raises
    ------
    TextFileError
        If it is not text, or far too long.
    OSError
        If it cannot be read.
    """
    with Path(path).open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TextFileError(path, 0, f"expected at most {MAX_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TextFileError(path, line, "expected text in UTF-8") from error


def known_names(name: str, known: Iterable[str]) -> str:
    """What there is instead of a name, the most similar ones first."""
    names = list(known)
    close = get_close_matches(name, names, n=3)
    shown = [*close, *(other for other in names if other not in close)]
    more = f" and {len(shown) - 10} more" if len(shown) > 10 else ""
    return "there is: " + (", ".join(repr(other[:80]) for other in shown[:10]) or "none") + more
