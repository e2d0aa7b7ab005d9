"""Text of a file, block by block: decompressed, and never all of it at once."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import IO

from dask_efficiency.files.storage import DamagedFileError, decompressed
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError

#: Bytes of text that are read at a time.
BLOCK = 1 << 18


def texts(file: IO[bytes], path: str, block: int = BLOCK) -> Iterator[str]:
    """The file's text in blocks, without a byte order mark; what is no UTF-8 is replaced.

    Raises
    ------
    KinetoFileError
        If a compressed file is damaged or ends early; it says how far it could be read.
    FileTooLargeError
        If it holds far more than its size.
    """
    decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
    content = decompressed(file, path)
    try:
        while data := content.read(block):
            yield decode(data)
    except DamagedFileError as error:
        raise KinetoFileError(str(error)) from error
    yield decode(b"", final=True)
