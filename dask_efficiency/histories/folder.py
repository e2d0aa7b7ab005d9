"""Heads of the reports in a folder, or at addresses of a pattern, with an index beside them that is only a cache."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dask_efficiency.files.storage import reading, writing
from dask_efficiency.plugin.version import __version__
from dask_efficiency.report.files import FORMAT, VERSION, ReportFileError, head_from_dict, read_head
from dask_efficiency.report.head import RunHead

#: Name of the index in a folder; it is written where that may be done, and left out of the listing.
INDEX = ".dask-efficiency-history"
#: Ends of the names of saved reports.
ENDS = (".json", ".json.gz", ".json.bz2", ".json.xz")
#: What a file system knows of a file by which a change of it shows, beside its size.
_STAMPS = (
    *("mtime", "LastModified", "last_modified", "updated", "ETag", "etag"),
    *("created", "modify", "modificationTime"),  # of fsspec's own memory, of FTP and of WebHDFS
)
#: Files from which on an index pays. By judgement: fewer heads are read at once.
WORTH_AN_INDEX = 20


@dataclass(frozen=True, slots=True)
class SavedRun:
    """Saved report: its path or URL, and its head."""

    path: str
    head: RunHead


def read_folder(where: str, **storage_options: Any) -> tuple[list[SavedRun], dict[str, str]]:
    """Heads of all reports of a folder, those in it included, or of a pattern; and why other files were not read.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no file matches.
    ValueError
        If it is in an archive, or in what else is a file system inside of another.
    """
    import fsspec

    if "::" in where:
        raise ValueError(f"{where} is a chain of file systems; expected a folder, or a pattern, of one of them")
    file_system, root = fsspec.core.url_to_fs(where, **storage_options)
    is_pattern = any(wildcard in where for wildcard in "*?[") and not file_system.exists(root)
    if not is_pattern and not file_system.isdir(root):
        what = "a file" if file_system.exists(root) else "not there"
        raise FileNotFoundError(
            f"{where} is {what}; expected a folder of saved reports, or a pattern such as 'main/*.json'"
        )
    listed = file_system.glob(root, detail=True) if is_pattern else file_system.find(root, detail=True)
    followed = {name: _followed(file_system, name, about) for name, about in sorted(listed.items())}
    files = {name: about for name, about in followed.items() if about.get("type") == "file"}  # no pipe or device
    stamps = {name: _stamp(about) for name, about in files.items() if name.endswith(ENDS)}
    if not stamps:
        what = "no file that matches has a name that" if is_pattern else "no name in it"
        raise FileNotFoundError(f"{where} has no saved report: {what} ends in {', '.join(ENDS)}")
    folder = os.path.dirname(root.split("*")[0].split("?")[0].split("[")[0]) if is_pattern else root.rstrip("/")
    index = file_system.unstrip_protocol(f"{folder}/{INDEX}")
    known = _read_index(index, storage_options)
    kept: dict[str, Any] = dict(known) if is_pattern else {}  # a pattern may leave files of the folder out
    runs, not_read = [], {}
    for name, stamp in stamps.items():
        path = name if "://" not in where else file_system.unstrip_protocol(name)
        short = name.removeprefix(f"{folder}/")
        try:
            if (head := _from_index(known.get(short), stamp)) is None:
                with file_system.open(name, "rb") as file:
                    head = read_head(file, path)
        except (OSError, ValueError) as error:
            not_read[path] = str(error)
            continue
        runs.append(SavedRun(path, head))
        if stamp:
            kept[short] = [stamp, head.to_dict()]
    if len(kept) >= WORTH_AN_INDEX and kept != known:
        _write_index(index, kept, storage_options)
    return runs, not_read


def _followed(file_system: Any, name: str, about: Mapping[str, Any]) -> Mapping[str, Any]:
    """Listed facts of a file, or of that to which a link leads: listings do not follow links."""
    if about.get("islink") or about.get("type") == "link":
        with suppress(OSError):  # it leads nowhere
            followed: Mapping[str, Any] = file_system.info(name)
            return followed
    return about


def _stamp(about: Mapping[str, Any]) -> str:
    """Size and time of a file, or a checksum; empty if the size is all that is known."""
    known = [str(about[name]) for name in _STAMPS if about.get(name) is not None]
    return " ".join([str(about.get("size")), *known]) if known else ""


def _from_index(known: Any, stamp: str) -> RunHead | None:
    if not (isinstance(known, list) and len(known) == 2 and known[0] == stamp):
        return None
    with suppress(ReportFileError):
        return head_from_dict({"format": FORMAT, "version": VERSION, "head": known[1]})
    return None


def _read_index(path: str, storage_options: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of an index by name of the file; none of one that is missing, damaged or of another version."""
    with suppress(OSError, ValueError, RecursionError), reading(path, **storage_options) as file:
        found = json.load(file)
        if isinstance(found, dict) and found.get("version") == __version__ and isinstance(found.get("runs"), dict):
            runs: dict[str, Any] = found["runs"]
            return runs
    return {}


def _write_index(path: str, runs: Mapping[str, Any], storage_options: Mapping[str, Any]) -> None:
    with suppress(OSError, ValueError, NotImplementedError), writing(path, **storage_options) as file:
        file.write(json.dumps({"version": __version__, "runs": runs}).encode("ascii"))
