"""What the argument of a command stands for: a scheduler, or a file of some kind, known by its content."""

from __future__ import annotations

import json
import os
import re
import shlex
import zipfile
from dataclasses import dataclass
from enum import Enum
from typing import Any

import click

from dask_efficiency.files.storage import ZIP, DamagedFileError, reading

_SCHEMES = ("tcp://", "tls://", "ucx://", "ucxx://", "ws://", "wss://")

#: Bytes by which a file is known.
_HEAD = 4096

#: Columns that a table of tasks has at least.
_COLUMNS = {"worker", "prefix"}


#: As :data:`dask_efficiency.report.files.FORMAT` has it.
_REPORT = "dask-efficiency-report"


class Kind(Enum):
    """What a source is: its name in a sentence, and what can be done with it; ``{}`` is the source."""

    SCHEDULER = "a scheduler", ""
    REPORT = "a saved report", "`dask-efficiency report {}` shows it"
    TRACE = "a recorded run", "`dask-efficiency critical-path {}` and `dask-efficiency stragglers {}` explain it"
    CSV = "a table of tasks", "`dask-efficiency stragglers {}` judges its workers"
    PARQUET = "a table of tasks (Parquet)", "`dask-efficiency stragglers {}` judges its workers"
    PAGE = "a page", "open it in a browser"
    KINETO = "a trace of torch.profiler", "`dask-efficiency torch path {}` explains it"
    TORCH_PATH = "a saved path of a torch trace", "`dask-efficiency torch path {}` shows it"
    CHROME = "a timeline", "open it in ui.perfetto.dev"
    OTHER = "of no kind that is known here", ""


@dataclass(frozen=True, slots=True)
class Source:
    """What a command was given."""

    given: str
    kind: Kind
    #: The scheduler's address, or the file's path or URL.
    where: str

    def refusal(self, wanted: str) -> click.ClickException:
        """What to say where the command cannot use it: what it is, what can, and what was expected."""
        name, use = self.kind.value
        use = f": {use.replace('{}', shlex.quote(self.given))}" if use else ""
        return click.ClickException(f"{self.given} is {name}{use}; expected {wanted}")


def scheduler_address(given: str, wanted: str = "a scheduler's address or its scheduler file") -> str:
    """The address of the scheduler that a command was given; anything else is refused with what can be done with it."""
    source = look_at(given)
    if source.kind is not Kind.SCHEDULER:
        raise source.refusal(wanted)
    return source.where


def look_at(given: str) -> Source:
    """What a command was given.

    Raises
    ------
    OSError, ValueError, ImportError
        If it is a file or URL that cannot be opened.
    """
    if is_address(given):
        return Source(given, Kind.SCHEDULER, given)
    try:
        with reading(given) as file:
            head = file.read(_HEAD)
            text = _text(head)
            if head.startswith(ZIP):
                return Source(given, _by_members(given), given)
            if head.startswith(b"PAR1"):
                return Source(given, Kind.PARQUET, given)
            if not text.startswith("{"):
                return Source(given, _by_first_line(text), given)
            if _is_kineto(text):  # they can be large
                return Source(given, Kind.KINETO, given)
            content = _object(head + file.read())
    except DamagedFileError:
        return Source(given, Kind.OTHER, given)
    if content.get("type") == "Scheduler" and isinstance(content.get("address"), str):
        return Source(given, Kind.SCHEDULER, content["address"])
    return Source(given, _by_fields(content), given)


def is_address(given: str) -> bool:
    """Whether it is a scheduler's address, and no file of such a name."""
    if given.startswith(_SCHEMES):
        return True
    return bool(re.fullmatch(r"[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", given)) and not os.path.exists(given)


def is_file(given: str) -> bool:
    """Whether there is a file of that name, and no folder."""
    import fsspec

    file_system, path = fsspec.core.url_to_fs(given)
    found: bool = file_system.isfile(path)
    return found


def _is_kineto(text: str) -> bool:
    """Whether what a file of JSON begins with is said by Kineto; old versions begin with the events at once."""
    return bool(re.search(r'"(schemaVersion|deviceProperties|baseTimeNanoseconds)"\s*:', text)) or (
        '"traceEvents"' in text
        and bool(re.search(r'"cat"\s*:\s*"(cpu_op|Operator|cuda_runtime|Runtime|kernel|Kernel)"', text))
    )


def _by_members(given: str) -> Kind:
    """An archive is a recorded run, or a report that is compressed."""
    import fsspec

    try:
        with fsspec.open(given, "rb", compression=None) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            if "path.json" in names:
                return Kind.TORCH_PATH
            return Kind.OTHER if len(names) == 1 else Kind.TRACE
    except (zipfile.BadZipFile, OSError, ValueError):  # damaged, or of a file system that cannot seek
        return Kind.TRACE


def _by_first_line(text: str) -> Kind:
    if re.match(r"<!doctype html|<html", text, re.IGNORECASE):
        return Kind.PAGE
    columns = {name.strip(" \"'") for name in text.partition("\n")[0].strip().split(",")}
    return Kind.CSV if columns >= _COLUMNS else Kind.OTHER


def _by_fields(content: dict[str, Any]) -> Kind:
    if content.get("format") == _REPORT:
        return Kind.REPORT
    return Kind.CHROME if "traceEvents" in content else Kind.OTHER


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")


def _object(content: bytes) -> dict[str, Any]:
    """The object that is in a file of JSON; an empty one for any other content."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
