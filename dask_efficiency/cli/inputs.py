"""Input: what the argument of a command stands for, a scheduler or a file of some kind, known by its content."""

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
#: Bytes at the start of a file from which its kind is recognized. A guess, larger than any header.
_HEAD = 4096
#: Columns that every table of tasks has.
_COLUMNS = {"worker", "prefix"}
#: Equal to :data:`dask_efficiency.report.files.FORMAT`.
_REPORT = "dask-efficiency-report"


class InputKind(Enum):
    """Kind of an input: its name in a sentence, and a command for it; ``{}`` is the input."""

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
class Input:
    """Input of a command."""

    given: str
    kind: InputKind
    #: The scheduler's address, or the file's path or URL.
    where: str

    def refusal(self, wanted: str) -> click.ClickException:
        """Error for a command that cannot use it: its kind, the command that can, and the expected kind."""
        name, use = self.kind.value
        use = f": {use.replace('{}', shlex.quote(self.given))}" if use else ""
        return click.ClickException(f"{self.given} is {name}{use}; expected {wanted}")


def scheduler_address(given: str, wanted: str = "a scheduler's address or its scheduler file") -> str:
    """Address of the scheduler that a command was given; any other input is refused, naming the command for it."""
    source = look_at(given)
    if source.kind is not InputKind.SCHEDULER:
        raise source.refusal(wanted)
    return source.where


def look_at(given: str) -> Input:
    """Recognize the kind of an input; OSError, ValueError or ImportError if it cannot be opened."""
    if is_address(given):
        return Input(given, InputKind.SCHEDULER, given)
    content: dict[str, Any] = {}
    try:
        with reading(given) as file:
            head = file.read(_HEAD)
            kind = _by_head(given, head)
            if kind is None:
                content = _object(head + file.read())
    except DamagedFileError:
        kind = InputKind.OTHER
    if content.get("type") == "Scheduler" and isinstance(content.get("address"), str):
        return Input(given, InputKind.SCHEDULER, content["address"])
    if content.get("format") == _REPORT:
        kind = InputKind.REPORT
    return Input(given, kind or (InputKind.CHROME if "traceEvents" in content else InputKind.OTHER), given)


def _by_head(given: str, head: bytes) -> InputKind | None:
    """Kind of a file by its first bytes; None for an object in JSON whose fields tell."""
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if head.startswith(ZIP):
        return _by_members(given)
    if head.startswith(b"PAR1"):
        return InputKind.PARQUET
    if text.startswith("{"):
        return InputKind.KINETO if _is_kineto(text) else None  # they can be large
    if re.match(r"<!doctype html|<html", text, re.IGNORECASE):
        return InputKind.PAGE
    columns = {name.strip(" \"'") for name in text.partition("\n")[0].strip().split(",")}
    return InputKind.CSV if columns >= _COLUMNS else InputKind.OTHER


def is_address(given: str) -> bool:
    """Check if it is a scheduler's address, and not the name of a file."""
    if given.startswith(_SCHEMES):
        return True
    return bool(re.fullmatch(r"[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", given)) and not os.path.exists(given)


def is_file(given: str) -> bool:
    """Check if a file, not a folder, has that name."""
    import fsspec

    file_system, path = fsspec.core.url_to_fs(given)
    return bool(file_system.isfile(path))


def _is_kineto(text: str) -> bool:
    """Check if the head of a JSON file is Kineto's; old versions of it begin with the events."""
    events = r'"cat"\s*:\s*"(cpu_op|Operator|cuda_runtime|Runtime|kernel|Kernel)"'
    if '"traceEvents"' in text and re.search(events, text):
        return True
    return bool(re.search(r'"(schemaVersion|deviceProperties|baseTimeNanoseconds)"\s*:', text))


def _by_members(given: str) -> InputKind:
    """Kind of a zip archive: a torch path, a recorded run, or of no known kind."""
    import fsspec

    try:
        with fsspec.open(given, "rb", compression=None) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            if "path.json" in names:
                return InputKind.TORCH_PATH
            return InputKind.OTHER if len(names) == 1 else InputKind.TRACE
    except (zipfile.BadZipFile, OSError, ValueError):  # damaged, or of a file system that cannot seek
        return InputKind.TRACE


def _object(content: bytes) -> dict[str, Any]:
    """The object in a JSON file; an empty one for any other content."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
