"""Text of a file, block by block: decompressed if it is gzip, and never all of it at once."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator
from typing import IO

from dask_efficiency.kineto.errors import KinetoFileError

#: Bytes of the file, and of what gzip makes of them, that are read at a time.
BLOCK = 1 << 18

_GZIP = b"\x1f\x8b"


def texts(file: IO[bytes], path: str, block: int = BLOCK) -> Iterator[str]:
    """The file's text in blocks, without a byte order mark; what is no UTF-8 is replaced.

    Raises
    ------
    KinetoFileError
        If a gzip file is damaged or ends early; it says how far it could be read.
    """
    decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
    first = file.read(max(block, len(_GZIP)))
    blocks = _unzipped(first, file, path, block) if first.startswith(_GZIP) else _read(first, file, block)
    for data in blocks:
        yield decode(data)
    yield decode(b"", final=True)


def _read(first: bytes, file: IO[bytes], block: int) -> Iterator[bytes]:
    data = first
    while data:
        yield data
        data = file.read(block)


def _unzipped(first: bytes, file: IO[bytes], path: str, block: int) -> Iterator[bytes]:
    """What one or more members of a gzip file say."""
    compressed = unzipped = 0
    wbits = 16 + zlib.MAX_WBITS
    member = zlib.decompressobj(wbits)
    try:
        for data in _read(first, file, block):
            compressed += len(data)
            rest = data
            while rest:
                if member.eof:
                    if not rest.strip(b"\0"):
                        break  # padding of tapes and of block devices
                    member = zlib.decompressobj(wbits)
                out = member.decompress(rest, block)
                unzipped += len(out)
                rest = member.unused_data if member.eof else member.unconsumed_tail
                if out:
                    yield out
        while not member.eof and (out := member.decompress(member.unconsumed_tail, block)):
            unzipped += len(out)
            yield out
    except zlib.error as error:
        raise KinetoFileError(f"{path}: damaged gzip within its first {compressed} bytes: {error}") from error
    if not member.eof:
        raise KinetoFileError(
            f"{path}: the gzip file ends early, after {compressed} bytes; they hold the first {unzipped} of its text"
        )
