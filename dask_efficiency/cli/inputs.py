"""Input: what the argument of a command stands for, a scheduler's address or a file of some kind, known by its content.

A file is data, and no command connects to anywhere because of what is in one: a scheduler's file, which has an address,
is taken as the option ``--scheduler-file`` only.
"""

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

from dask_efficiency.files.storage import ZIP, DamagedFileError, opened, reading
from dask_efficiency.files.text_files import read_text

_SCHEMES = ("tcp://", "tls://", "ucx://", "ucxx://", "ws://", "wss://")
#: Bytes at the start of a file from which its kind is recognized. A guess, larger than any header.
HEAD = 4096
#: Columns that every table of tasks has.
_COLUMNS = {"worker", "prefix"}
#: Equal to :data:`dask_efficiency.report.files.FORMAT`.
_REPORT = "dask-efficiency-report"
#: Start of a cluster's dump in MessagePack: a mapping of three, of which ``scheduler`` is the first.
_DUMP = b"\x83\xa9scheduler"


class InputKind(Enum):
    """Kind of an input: its name in a sentence, and a command for it; ``{}`` is the input."""

    SCHEDULER = "a scheduler", ""
    SCHEDULER_FILE = "a scheduler's file", "commands that ask a scheduler take it as `--scheduler-file {}`"
    REPORT = "a saved report", "`dask-efficiency report {}` shows it"
    TRACE = "a recorded run", "`dask-efficiency critical-path {}` and `dask-efficiency stragglers {}` explain it"
    CSV = "a table of tasks", "`dask-efficiency stragglers {}` judges its workers"
    PARQUET = "a table of tasks (Parquet)", "`dask-efficiency stragglers {}` judges its workers"
    PAGE = "a page", "open it in a browser"
    KINETO = (
        "a trace of torch.profiler",
        "`dask-efficiency torch summary {}` and `dask-efficiency torch path {}` explain it",
    )
    EXECUTION = (
        "an execution trace of PyTorch or Chakra",
        "`dask-efficiency torch path TRACE --execution-trace {}` reads it beside the profiler's trace",
    )
    AUTOGRAD = "a trace of torch.autograd.profiler, which has no streams", "record one with torch.profiler"
    TORCH_PATH = "a saved path of a torch trace", "`dask-efficiency torch path {}` shows it"
    CHROME = "a timeline", "open it in ui.perfetto.dev"
    OVERLAY = "a timeline with a critical path, which --chrome wrote", "open it in ui.perfetto.dev"
    DUMP = "a dump of a cluster's state", "`distributed.cluster_dump.DumpArtefact.from_url` reads it"
    PERFORMANCE_REPORT = "a page of Dask's performance_report", "open it in a browser"
    OTHER = "of no kind that is known here", ""


#: By kind, what the head of such a file in JSON says.
_SAY = (
    (InputKind.OVERLAY, re.compile(r'"process_name","args":\{"name":"critical path"\}')),
    (InputKind.EXECUTION, re.compile(r'^(?!.*"traceEvents").*("nodes"\s*:\s*\[|"ctrl_?[dD]eps"\s*:)', re.DOTALL)),
    (InputKind.AUTOGRAD, re.compile(r'^\[.*"pid"\s*:\s*"CPU functions"', re.DOTALL)),
)


@dataclass(frozen=True, slots=True)
class Input:
    """Input of a command."""

    given: str
    kind: InputKind
    #: The scheduler's address, or the file's path or URL.
    where: str

    def refusal(self, wanted: str) -> click.ClickException:
        """Error for a command that cannot use it: its kind, the command that can, and the expected kind."""
        return click.ClickException(self.instead_of(wanted))

    def instead_of(self, wanted: str) -> str:
        """Words of that error."""
        name, use = self.kind.value
        use = f": {use.replace('{}', shlex.quote(self.given))}" if use else ""
        return f"{self.given} is {name}{use}; expected {wanted}"


def scheduler_address(given: str, wanted: str = "a scheduler's address") -> str:
    """Address of the scheduler that a command was given; any other input is refused, naming the command for it."""
    source = look_at(given)
    if source.kind is not InputKind.SCHEDULER:
        raise source.refusal(wanted)
    return source.where


def address_in(scheduler_file: str) -> str:
    """Address in a file that ``dask scheduler --scheduler-file`` wrote; ValueError in any other."""
    content = _object(read_text(scheduler_file).encode())
    address = content.get("address")
    if content.get("type") != "Scheduler" or not isinstance(address, str) or not address.startswith(_SCHEMES):
        raise ValueError(
            f"{scheduler_file} is no scheduler's file; expected one that `dask scheduler --scheduler-file` wrote"
        )
    return address


def look_at(given: str) -> Input:
    """Recognize the kind of an input; OSError, ValueError or ImportError if it cannot be opened."""
    if is_address(given):
        return Input(given, InputKind.SCHEDULER, given)
    if os.path.isdir(given):
        raise IsADirectoryError(f"{given} is a folder; expected a file, or of several runs a pattern such as '*.json'")
    content: dict[str, Any] = {}
    try:
        with reading(given) as file:
            head = file.read(HEAD)
            kind = _by_head(given, head)
            if kind is None:
                content = _object(head + file.read())
    except DamagedFileError:
        kind = InputKind.OTHER
    if content.get("format") == _REPORT:
        kind = InputKind.REPORT
    elif content.get("type") == "Scheduler" and "address" in content:
        kind = InputKind.SCHEDULER_FILE
    return Input(given, kind or (InputKind.CHROME if "traceEvents" in content else InputKind.OTHER), given)


def _by_head(given: str, head: bytes) -> InputKind | None:
    """Kind of a file by its first bytes; None for an object in JSON whose fields tell."""
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if head.startswith(ZIP):
        return _by_members(given)
    if head.startswith(b"PAR1"):
        return InputKind.PARQUET
    if head.startswith(_DUMP) or text.startswith(("scheduler:\n", "workers:\n", "versions:\n")):
        return InputKind.DUMP
    if (kind := said_by(text)) is not None:
        return kind
    if text.startswith("{"):
        return InputKind.KINETO if _is_kineto(text) else None  # they can be large
    if re.match(r"<!doctype html|<html", text, re.IGNORECASE):
        return InputKind.PERFORMANCE_REPORT if "<title>Dask Performance Report" in text else InputKind.PAGE
    columns = {name.strip(" \"'") for name in text.partition("\n")[0].strip().split(",")}
    return InputKind.CSV if columns >= _COLUMNS else InputKind.OTHER


def said_by(text: str) -> InputKind | None:
    """Kind that the head of a JSON file says it is; None if it does not."""
    if not text.startswith(("{", "[")):
        return None
    return next((kind for kind, says in _SAY if says.search(text)), None)


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
    try:
        with opened(given) as file, zipfile.ZipFile(file) as archive:
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
