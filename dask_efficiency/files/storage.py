"""Files at local paths and fsspec URLs: written as a whole or not at all, and read with their sizes counted."""

from __future__ import annotations

import bz2
import errno
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
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pandas as pd

#: Bytes of an upload that are kept in memory; more are kept on disk. A guess.
_IN_MEMORY = 1 << 26
#: Bounds of a decompressed file: bytes, or multiples of its compressed size, whichever is larger. Real files hold 2 to
#: 40 times their size, deflated zeros 1,000 times. JSON objects take up to 28 times their text in memory.
MAX_BYTES, MAX_RATIO = 20_000_000, 100

#: Openers of compressed files by their first bytes.
_COMPRESSED: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}

ZIP = b"PK\x03\x04"
#: Flags of a zip archive's member: encrypted, patched, strongly encrypted.
_ENCRYPTED_OR_PATCHED = 0x61
#: Links that are followed one after the other, as Linux does.
_MAX_LINKS = 40
#: Links to the open files of this process.
_OPEN_FILES = "/proc/self/fd"
_any_size: ContextVar[bool] = ContextVar("any_size", default=False)


class FileTooLargeError(ValueError):
    """A file holds far more than its own size."""


class DamagedFileError(ValueError):
    """A compressed file is damaged, or ends early."""


@contextmanager
def any_size() -> Iterator[None]:
    """Lift the bounds on the size of files in this block."""
    token = _any_size.set(True)
    try:
        yield
    finally:
        _any_size.reset(token)


def check_held(name: str, size: int, held: int) -> None:
    """Refuse a file of ``size`` bytes that holds ``held`` bytes, if these are beyond both bounds."""
    if held > max(MAX_BYTES, MAX_RATIO * size) and not _any_size.get():
        raise FileTooLargeError(
            f"{name}: its first {size} bytes hold more than {held} once decompressed; expected at most {MAX_RATIO} "
            f"times as many, or {MAX_BYTES}. If you trust it: `dask-efficiency --any-size`, or `with "
            "dask_efficiency.files.storage.any_size():`"
        )


class _Counted(io.RawIOBase):
    """Reader that counts the bytes of a file, and bounds them if it knows the ``size`` of the stored file."""

    def __init__(
        self, read: Callable[[int], bytes], name: str = "", size: Callable[[], int] | None = None, held: int = 0
    ) -> None:
        self._read, self._name, self._size = read, name, size
        #: Bytes so far, with those that were read before.
        self.held = held

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._read(len(buffer))
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if self._size is None or getattr(error, "errno", None) is not None:
                raise  # a file that cannot be read
            read = f"{self._size()} bytes; they hold the first {self.held} of its content"
            early = isinstance(error, EOFError)
            problem = f"ends early, after {read}" if early else f"is damaged within its first {read}: {error}"
            raise DamagedFileError(f"{self._name}: the compressed file {problem}") from error
        buffer[: len(data)] = data
        self.held += len(data)
        if self._size is not None:
            check_held(self._name, self._size(), self.held)
        return len(data)


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
    """Open a local file or fsspec URL to read its content, see :func:`decompressed`."""
    with opened(path, **storage_options) as file:
        yield decompressed(file, os.fspath(path))


def stored(path: str | os.PathLike[str], **storage_options: Any) -> bytes:
    """Read the bytes of an archive, at a local path or fsspec URL, without decompression.

    An archive inside a compressed file could hold 100 times what 100 times that file's size is.
    """
    with opened(path, **storage_options) as file:
        return bytes(file.read())


def opened(path: str | os.PathLike[str], **storage_options: Any) -> Any:
    """Open a local file or fsspec URL for its stored bytes, in a ``with``, if :func:`check_file` lets it."""
    import fsspec

    check_file(path)
    return fsspec.open(os.fspath(path), "rb", compression=None, **storage_options)


def check_file(path: str | os.PathLike[str]) -> None:
    """Raise OSError for a local pipe or device: files are looked at before they are read, and devices may never end."""
    import fsspec

    target = os.fspath(path)
    if _is_local(target):
        local = fsspec.core.url_to_fs(target)[1]
        if os.path.exists(local) and not os.path.isfile(local) and not os.path.isdir(local):
            kind = "pipe" if stat.S_ISFIFO(os.stat(local).st_mode) else "device or socket"
            raise OSError(f"{target} is a {kind}; expected a file, as it is read more than once")


class Members:
    """Members of a zip archive, which together are bounded like one file.

    ``report`` is called with the bytes read of all members, and the bytes that the archive declares.
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
        """Declared size of a member, and its compressed size; KeyError if it is missing."""
        info = self._archive.getinfo(member)
        return info.file_size, info.compress_size

    def read(self, member: str) -> bytes:
        """Content of a member; KeyError if it is missing."""
        with self._archive.open(member) as file:
            counted = _Counted(file.read, self._name, lambda: self._size, self._held)
            try:
                return io.BufferedReader(counted, 1 << 18).read()
            finally:
                self._held = counted.held
                self._report(self._held, self._of)


@contextmanager
def writing(
    path: str | os.PathLike[str], *, compression: str | None = None, new: bool = False, **storage_options: Any
) -> Iterator[IO[bytes]]:
    """Open a binary file for writing, which replaces the target once the block has ended without an error.

    A local pipe or device is written to as it stands. ``compression`` is one of fsspec's, or ``"infer"``: as the end of
    the name says. With ``new``, nothing is replaced: FileExistsError if the target exists by then.
    """
    import fsspec

    target = os.fspath(path)
    if compression == "infer":
        compression = fsspec.utils.infer_compression(target)
    if _is_local(target):
        file_system, target = fsspec.core.url_to_fs(target, **storage_options)
        if file_system.auto_mkdir:
            os.makedirs(os.path.dirname(target), exist_ok=True)
        place = _in_place(followed(target), new=new)
    else:
        place = _elsewhere(target, storage_options, new=new)
    with place as file:
        if compression is None:
            yield file
        else:
            with fsspec.compression.compr[compression](file, mode="wb") as compressed:
                yield compressed


def check_target(path: str | os.PathLike[str]) -> None:
    """Raise OSError early if a local path cannot be written, or is a folder; URLs are not checked."""
    import fsspec

    target = os.fspath(path)
    if not _is_local(target):
        return
    local = followed(fsspec.core.url_to_fs(target)[1])
    folder = os.path.dirname(local)
    if os.path.isdir(local):
        raise IsADirectoryError(f"{target!r} cannot be written: it is a folder; expected a file")
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{target!r} cannot be written: the folder {folder!r} does not exist")
    # A file is replaced as a whole, a pipe or a device is written to.
    place = local if os.path.exists(local) and not os.path.isfile(local) else folder
    if not os.access(place, os.W_OK):
        raise PermissionError(f"{target!r} cannot be written: {place!r} may not be written to")


def followed(path: str | os.PathLike[str]) -> str:
    """Place of a local file or folder to write, after all links on the way.

    PermissionError for another user's link in a folder that anyone may write to, such as ``/tmp``: it could lead to a
    file of yours. Linux' ``protected_symlinks`` does not hold for links that a program resolves by itself.
    """
    place, rest, links = os.getcwd(), [*reversed(PurePath(path).parts)], 0
    while rest:
        part = rest.pop()
        if part == os.pardir:
            place = os.path.dirname(place)
            continue
        folder, place = place, os.path.join(place, part)
        if not os.path.islink(place):
            continue
        if _may_mislead(place, folder):
            whose = "is another user's link in a folder that anyone may write to"
            raise PermissionError(f"{place!r} {whose}; expected no link, or one of your own")
        if (links := links + 1) > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
        rest.extend(reversed(PurePath(os.readlink(place)).parts))
        place = folder
    # Links in /proc lead to open files, whatever name they show.
    is_open = os.path.exists(path) and not os.path.exists(place)
    return os.path.abspath(path) if is_open else place


def _may_mislead(link: str, folder: str) -> bool:
    if not hasattr(os, "geteuid"):
        return False
    about = os.stat(folder)
    return bool(about.st_mode & stat.S_IWOTH) and os.lstat(link).st_uid not in (os.geteuid(), about.st_uid)


class _Written(io.FileIO):
    """New or open file whose errors name the target, which the user gave."""

    def __init__(self, file: int, target: str) -> None:
        super().__init__(file, "wb")
        self._target = target

    def write(self, data: Any) -> int:
        with _naming(self._target):
            return super().write(data)


@contextmanager
def _naming(target: str) -> Iterator[None]:
    """Let errors of the operating system in this block name the target only."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, target) from error


@contextmanager
def _in_place(target: str, *, new: bool) -> Iterator[IO[bytes]]:
    if os.path.exists(target) and not os.path.isfile(target):
        # a file in place of a pipe or a device would be worse than a torn write
        with _naming(target):
            descriptor = os.open(target, os.O_WRONLY)
        with io.BufferedWriter(_Written(descriptor, target)) as file:
            yield file
        return
    temporary = os.path.join(os.path.dirname(target), f".{uuid.uuid4().hex}.tmp")
    try:
        with _naming(target):
            descriptor = _opened_new(target, temporary)
        with io.BufferedWriter(_Written(descriptor, target)) as file:
            yield file
            with _naming(target):
                file.flush()
                os.fsync(descriptor)
                if not os.path.exists(temporary):
                    # With a folder, of which an absolute path makes no use: Python follows links only then.
                    os.link(f"{_OPEN_FILES}/{descriptor}", temporary, src_dir_fd=descriptor)
        with _naming(target):
            (_create if new else os.replace)(temporary, target)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def _opened_new(target: str, temporary: str) -> int:
    """Open a new file for a target, without a name where the file system can: a killed save leaves nothing then."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir(_OPEN_FILES):
        with suppress(OSError):
            return _open_like(target, os.path.dirname(target), os.O_WRONLY | os.O_TMPFILE)
    return _open_like(target, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0))


def _create(temporary: str, target: str) -> None:
    """Give a file a name that is free; FileExistsError if it is not."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.replace(temporary, target)


def _open_like(target: str, path: str, flags: int) -> int:
    """Open a new file with the owner and permissions of the one that it will replace."""
    if not hasattr(os, "fchmod") or not os.path.exists(target):
        return os.open(path, flags, 0o666)
    before = os.stat(target)
    mode = stat.S_IMODE(before.st_mode)
    file = os.open(path, flags, 0o600)
    try:
        os.chown(file, before.st_uid, before.st_gid)
    except OSError:
        # The file was another user's, who may be unknown in this container: the new file's group gets the rights that
        # others had.
        mode = mode & ~0o070 | (mode & 0o007) << 3
    os.fchmod(file, mode)
    return file


@contextmanager
def _elsewhere(url: str, storage_options: dict[str, Any], *, new: bool) -> Iterator[IO[bytes]]:
    import fsspec

    # an object store keeps what was sent before an error, so sending waits for the whole content
    with _Waiting(_IN_MEMORY) as waiting:
        yield cast(IO[bytes], waiting)
        waiting.seek(0)
        remote = fsspec.open(url, "wb", compression=None, **storage_options)
        # Two that ask at the same moment both write: object stores have nothing better in common.
        if new and remote.fs.exists(remote.path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), url)
        with remote as file:
            shutil.copyfileobj(waiting, file)


class _Waiting(tempfile.SpooledTemporaryFile[bytes]):
    """Content that waits in memory, or in the folder of temporary files, which errors name."""

    def write(self, data: Any) -> int:
        with _naming(tempfile.gettempdir()):
            return super().write(data)


def _is_local(path: str) -> bool:
    import fsspec

    return "::" not in path and fsspec.utils.get_protocol(path) in ("file", "local")


@contextmanager
def _needing(what: str) -> Iterator[None]:
    """Say what to install where an import fails."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{what} ({error})") from error


def read_csv(path: str) -> pd.DataFrame:
    """Read a CSV file, which may be compressed, without nameless columns, such as the index that pandas writes."""
    with _needing("a table in CSV needs pandas: pip install pandas"):
        import pandas as pd

    with reading(path) as file:
        frame: pd.DataFrame = pd.read_csv(file, usecols=lambda name: not name.startswith("Unnamed: "))
    return frame


def read_parquet(path: str) -> pd.DataFrame:
    """Read a Parquet file; its rows may take no bytes at all in it."""
    with _needing("a table in Parquet needs pandas and pyarrow: pip install pandas pyarrow"):
        import pandas as pd
        from pyarrow.parquet import read_metadata

    with opened(path) as file:
        about, size = read_metadata(file), file.seek(0, 2)
        groups = [about.row_group(number) for number in range(about.num_row_groups)]
        rows, nbytes = sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
        check_held(path, size, max(nbytes, 8 * rows * about.num_columns))
        file.seek(0)
        return pd.read_parquet(file)
