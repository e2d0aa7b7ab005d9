"""Files at local paths and fsspec URLs: written as a whole or not at all, and read with their sizes counted."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import tempfile
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import IO, Any, cast

#: Bytes on their way to another machine that are kept in memory; more of them wait on disk.
_IN_MEMORY = 1 << 26


#: What a file may hold once it is decompressed: so many bytes, or so many times its own size. Real ones hold 2 to 40
#: times their size; what deflate makes of zeros, 1,000 times. Objects of JSON take up to 28 times their text.
MAX_BYTES, MAX_RATIO = 20_000_000, 100

#: How files begin that are decompressed as they are read.
_COMPRESSED: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}

ZIP = b"PK\x03\x04"

#: Flags of a zip archive's member: encrypted, patched, strongly encrypted.
_ENCRYPTED_OR_PATCHED = 0x61

_any_size: ContextVar[bool] = ContextVar("any_size", default=False)


class FileTooLargeError(ValueError):
    """A file holds far more than its own size."""


class DamagedFileError(ValueError):
    """A compressed file is damaged, or ends early."""


@contextmanager
def any_size() -> Iterator[None]:
    """In this block files are read however much they hold."""
    token = _any_size.set(True)
    try:
        yield
    finally:
        _any_size.reset(token)


def check_held(name: str, size: int, held: int) -> None:
    """Refuse a file of so many bytes that holds so many.

    Raises
    ------
    FileTooLargeError
        If these are far more.
    """
    if held > max(MAX_BYTES, MAX_RATIO * size) and not _any_size.get():
        raise FileTooLargeError(
            f"{name}: its first {size} bytes hold more than {held} once decompressed; expected at most {MAX_RATIO} "
            f"times as many, or {MAX_BYTES}. If you trust it: `dask-efficiency --any-size`, or `with "
            "dask_efficiency.files.storage.any_size():`"
        )


class _Counted(io.RawIOBase):
    """What is read of a file, counted.

    Parameters
    ----------
    read
        Gives so many bytes, or fewer.
    name
        Of the file, for messages.
    size
        Gives the bytes of the file as it is stored; without it, any number may be read.
    held
        The bytes that were read of it already.
    """

    def __init__(
        self, read: Callable[[int], bytes], name: str = "", size: Callable[[], int] | None = None, held: int = 0
    ) -> None:
        self._read, self._name, self._size = read, name, size
        self.held = held

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._data(len(buffer))
        buffer[: len(data)] = data
        self.held += len(data)
        if self._size is not None:
            check_held(self._name, self._size(), self.held)
        return len(data)

    def _data(self, nbytes: int) -> bytes:
        try:
            return self._read(nbytes)
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if self._size is None or getattr(error, "errno", None) is not None:
                raise  # a file that cannot be read
            read = f"{self._size()} bytes; they hold the first {self.held} of its content"
            early = isinstance(error, EOFError)
            said = f"ends early, after {read}" if early else f"is damaged within its first {read}: {error}"
            raise DamagedFileError(f"{self._name}: the compressed file {said}") from error


def decompressed(file: IO[bytes], name: str) -> IO[bytes]:
    """A file's content from here on, decompressed if it begins as gzip, bz2 or xz.

    Reading it raises :class:`FileTooLargeError` as soon as more came out than is expected of a file of its size, and
    :class:`DamagedFileError` where it cannot be decompressed.
    """
    stored = _Counted(file.read)
    buffered = io.BufferedReader(stored)
    head = buffered.peek(8)
    for magic, opened in _COMPRESSED.items():
        if head.startswith(magic):
            return io.BufferedReader(_Counted(opened(buffered).read1, name, lambda: stored.held))
    return buffered


@contextmanager
def reading(path: str | os.PathLike[str], **storage_options: Any) -> Iterator[IO[bytes]]:
    """The content of a local file or any fsspec URL, see :func:`decompressed`."""
    import fsspec

    with fsspec.open(os.fspath(path), "rb", compression=None, **storage_options) as file:
        yield decompressed(file, os.fspath(path))


def stored(path: str | os.PathLike[str], **storage_options: Any) -> bytes:
    """The bytes of a local file or any fsspec URL as they are, never decompressed: those of an archive.

    An archive inside a compressed file could hold 100 times what 100 times that file's size is.
    """
    import fsspec

    with fsspec.open(os.fspath(path), "rb", compression=None, **storage_options) as file:
        content: bytes = file.read()
    return content


class Members:
    """The members of a zip archive, which together hold no more than a file may.

    Parameters
    ----------
    content
        The archive, as :func:`stored` reads it.
    name
        Of the file, for messages.
    report
        Is called with the bytes that were read of all members, and with those that they say they hold.

    Raises
    ------
    zipfile.BadZipFile
        If it is no archive, or has members that are encrypted, or neither stored nor deflated.
    FileTooLargeError
        As soon as more was read of all members than is expected of a file of its size.
    """

    def __init__(self, content: bytes, name: str, report: Callable[[int, int], object] = lambda held, of: None) -> None:
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(content))
        except (NotImplementedError, UnicodeDecodeError) as error:
            raise zipfile.BadZipFile(str(error)) from error
        self._name, self._size, self._report = name, len(content), report
        self._held, self._of = 0, sum(member.file_size for member in self._archive.infolist())
        for member in self._archive.infolist():
            if member.flag_bits & _ENCRYPTED_OR_PATCHED:
                raise zipfile.BadZipFile(f"{member.filename!r:.80} is encrypted or patched")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"{member.filename!r:.80} is neither stored nor deflated")

    @property
    def names(self) -> list[str]:
        """Names of the members."""
        return self._archive.namelist()

    def sizes(self, member: str) -> tuple[int, int]:
        """The bytes that a member says it holds, and in how many; KeyError if there is none of this name."""
        found = self._archive.getinfo(member)
        return found.file_size, found.compress_size

    def read(self, member: str) -> bytes:
        """A member; KeyError if there is none of this name."""
        with self._archive.open(member) as file:
            counted = _Counted(file.read, self._name, lambda: self._size, self._held)
            try:
                return io.BufferedReader(counted, 1 << 18).read()
            finally:
                self._held = counted.held
                self._report(self._held, self._of)


@contextmanager
def writing(
    path: str | os.PathLike[str], *, compression: str | None = None, **storage_options: Any
) -> Iterator[IO[bytes]]:
    """A binary file to write to, that stands in its place once the block has ended without an error.

    Parameters
    ----------
    path
        A local path or any fsspec URL. A local pipe or device is written to as it stands.
    compression
        One of fsspec's, or ``"infer"``: as the end of the name says (``.gz``, ``.bz2``, ``.xz``).
    **storage_options
        For the file system, as in :func:`fsspec.open`.
    """
    import fsspec

    target = os.fspath(path)
    if compression == "infer":
        compression = fsspec.utils.infer_compression(target)
    if _is_local(target):
        file_system, target = fsspec.core.url_to_fs(target, **storage_options)
        if file_system.auto_mkdir:
            os.makedirs(os.path.dirname(target), exist_ok=True)
        place = _in_place(os.path.realpath(target))
    else:
        place = _elsewhere(target, storage_options)
    with place as file:
        if compression is None:
            yield file
        else:
            with fsspec.compression.compr[compression](file, mode="wb") as compressed:
                yield compressed


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse a local path that cannot be written, before there is anything to write; a URL is not looked at.

    Raises
    ------
    OSError
        If its folder is missing or cannot be written to, or if it is a folder itself.
    """
    import fsspec

    target = os.fspath(path)
    if not _is_local(target):
        return
    local = os.path.realpath(fsspec.core.url_to_fs(target)[1])
    folder = os.path.dirname(local)
    if os.path.isdir(local):
        raise IsADirectoryError(f"{target!r} cannot be written: it is a folder; expected a file")
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{target!r} cannot be written: the folder {folder!r} does not exist")
    # A file is replaced as a whole, a pipe or a device is written to.
    place = local if os.path.exists(local) and not os.path.isfile(local) else folder
    if not os.access(place, os.W_OK):
        raise PermissionError(f"{target!r} cannot be written: {place!r} may not be written to")


@contextmanager
def _in_place(target: str) -> Iterator[IO[bytes]]:
    if os.path.exists(target) and not os.path.isfile(target):
        # a file in place of a pipe or a device would be worse than a torn write
        with open(target, "wb") as file:
            yield file
        return
    beside = os.path.join(os.path.dirname(target), f".{uuid.uuid4().hex}.tmp")
    try:
        with open(beside, "xb", opener=partial(_beside, target)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except OSError as error:
        if error.filename == beside:
            error.filename = target  # the one that the user gave
        raise
    finally:
        if os.path.exists(beside):
            os.remove(beside)


def _beside(target: str, path: str, flags: int) -> int:
    """Open a new file that those may read who may read the one in whose place it comes, and nobody else."""
    if not hasattr(os, "fchmod") or not os.path.exists(target):
        return os.open(path, flags, 0o666)
    before = os.stat(target)
    mode = stat.S_IMODE(before.st_mode)
    file = os.open(path, flags, 0o600)
    try:
        os.chown(file, before.st_uid, before.st_gid)
    except PermissionError:
        # It is another's. The group that it is of now was among the others.
        mode = mode & ~0o070 | (mode & 0o007) << 3
    os.fchmod(file, mode)
    return file


@contextmanager
def _elsewhere(url: str, storage_options: dict[str, Any]) -> Iterator[IO[bytes]]:
    import fsspec

    # an object store keeps what was sent before an error, so nothing is sent before all of it is there
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as waiting:
        yield cast(IO[bytes], waiting)
        waiting.seek(0)
        with fsspec.open(url, "wb", compression=None, **storage_options) as file:
            shutil.copyfileobj(waiting, file)


def _is_local(path: str) -> bool:
    import fsspec

    return "::" not in path and fsspec.utils.get_protocol(path) in ("file", "local")
