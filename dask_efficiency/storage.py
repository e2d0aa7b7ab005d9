"""Files that are written as a whole or not at all, at local paths and fsspec URLs."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any, cast

#: Bytes on their way to another machine that are kept in memory; more of them wait on disk.
_IN_MEMORY = 1 << 26


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
