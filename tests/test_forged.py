"""Files in which numbers and names are forged: each command refuses them in one line, or shows them well."""

from __future__ import annotations

import copy
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dask_efficiency.cli import main
from dask_efficiency.report.files import load_report, to_dict
from dask_efficiency.runs.trace.files import load_trace
from dask_efficiency.torch_traces.path.files import load_critical_path
from tests.report.samples import everything
from tests.torch_traces.path.samples import recorded

DATA = Path(__file__).parent / "data"
#: In place of each number; a number that nothing has, and what is none.
ODD = [10**400, 1e308, -1, float("nan"), 1 << 63, 1 << 62, True, "x", None]
#: In place of each name: steers a terminal, turns the rest of the line around, and is a tag.
NAME = "\x1b[31m\u202e\x9b<img src=x>\n\r\x07"
RAW = set(NAME) - set("[31m<img src=x>\n")


def run(*arguments: str) -> str:
    """All that a command prints: a result, or one line of what is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        ran = CliRunner().invoke(main, arguments)
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    assert ran.exit_code in (0, 1, 2), ran.output
    if ran.exit_code:
        assert len(ran.stderr.strip().splitlines()) == 1, ran.output
        assert len(ran.stderr) < 1_000, ran.stderr
    return ran.output


def places(value: Any, kind: type | tuple[type, ...], at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where plain data have a value of this type."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if type(value) is list else ():
        if isinstance(inner, kind):
            yield *at, key
        else:
            yield from places(inner, kind, (*at, key))


def one_of_each(value: Any, kind: type | tuple[type, ...]) -> list[tuple[Any, ...]]:
    """The first place of each kind: items of a list are alike."""
    return list({tuple("" if type(key) is int else key for key in at): at for at in places(value, kind)}.values())


def forged(value: Any, at: tuple[Any, ...], odd: Any) -> Any:
    """Plain data with something odd at one place; the rest is shared."""
    if not at:
        return odd
    made = copy.copy(value)
    made[at[0]] = forged(value[at[0]], at[1:], odd)
    return made


def renamed(value: Any, name: str, other: str) -> Any:
    """Plain data with another name wherever this one is."""
    if isinstance(value, dict):
        return {renamed(key, name, other): renamed(inner, name, other) for key, inner in value.items()}
    if isinstance(value, list):
        return [renamed(inner, name, other) for inner in value]
    return other if value == name else value


def names_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {*value, *(name for inner in value.values() for name in names_in(inner))}
    if isinstance(value, list):
        return {name for inner in value for name in names_in(inner)}
    return {value} if isinstance(value, str) else set()


# -- the files, and the commands that read them ---------------------------------------------------------


def in_archive(content: bytes, description: str) -> tuple[Any, Callable[[Any], bytes]]:
    """What an archive says of its columns, and how it is written with something else."""
    with zipfile.ZipFile(BytesIO(content)) as file:
        members = {name: file.read(name) for name in file.namelist()}

    def written(value: Any) -> bytes:
        into = BytesIO()
        with zipfile.ZipFile(into, "w") as archive:
            for name, member in {**members, description: json.dumps(value).encode()}.items():
                archive.writestr(name, member)
        return into.getvalue()

    return json.loads(members[description]), written


def of_path(path: Any, folder: Path) -> bytes:
    path.save(folder / "saved")
    return (folder / "saved").read_bytes()


SPILLING = str(DATA / "diagnoses" / "spilling.json")
COMMANDS = {
    "report": [
        ["report", "file"],
        ["report", "file", "--all"],
        ["report", "file", "--json"],
        ["report", "file", "--html", "page.html"],
        ["compare", SPILLING, "file"],
        ["compare", "file", SPILLING, "--html", "page.html"],
        ["compare", "file", SPILLING, "--json"],
    ],
    "trace": [
        ["critical-path", "file", "--html", "page.html", "--chrome", "chrome.json"],
        ["critical-path", "file", "--json"],
        ["critical-path", "file", "--before", str(DATA / "diagnoses" / "chain.trace")],
        ["critical-path", "file"],
        ["critical-path", "file", "--speedups"],
        ["stragglers", "file"],
        ["stragglers", "file", "--json"],
    ],
    "path": [
        ["torch", "path", "file"],
        ["torch", "path", "file", "--json"],
        ["torch", "path", "file", "--html", "page.html", "--chrome", "chrome.json"],
    ],
}


LOADERS: dict[str, Callable[[str], object]] = {"report": load_report, "trace": load_trace, "path": load_critical_path}


TRACE = (DATA / "traces" / "everything.trace").read_bytes()
FILES: dict[str, Callable[[Path], tuple[Any, Callable[[Any], bytes]]]] = {
    "report": lambda _: (json.loads(json.dumps(to_dict(everything()))), lambda value: json.dumps(value).encode()),
    "trace": lambda _: in_archive(TRACE, "trace.json"),
    "path": lambda folder: in_archive(of_path(recorded("event_sync"), folder), "path.json"),
}


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    return request.param, *FILES[request.param](tmp_path)


def outputs(kind: str, content: bytes) -> Iterator[str]:
    """All that each command prints and writes, until one refuses the file."""
    Path("file").write_bytes(content)
    for command in COMMANDS[kind]:
        for name in ("page.html", "chrome.json"):
            Path(name).unlink(missing_ok=True)
        printed = run(*command)
        yield printed
        if printed.startswith("Error: "):
            return
        if "page.html" in command:
            yield Path("page.html").read_text()
        if "chrome.json" in command:
            json.loads(Path("chrome.json").read_text())


def is_taken(kind: str, content: bytes) -> bool:
    """Load a file; one that is refused names it, and what is wrong, in one line."""
    Path("file").write_bytes(content)
    try:
        LOADERS[kind]("file")
    except ValueError as error:
        text = str(error)
        assert text.startswith("file: ")
        assert len(text) < 1_000
        assert not RAW & set(text), text
        return False
    return True


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:12])
def test_no_number_of_a_file_ends_a_command(file: Any, odd: Any) -> None:
    """Each number that is taken is shown together with the others; `make fuzz` draws them one by one."""
    kind, value, written = file
    together = value
    for at in one_of_each(value, (int, float)):
        more = forged(together, at, odd)
        if at[0] != "head" and is_taken(kind, written(more)):
            together = more
    for _ in outputs(kind, written(together)):
        pass


def test_no_name_of_a_file_is_printed_raw(file: Any) -> None:
    kind, value, written = file
    together, taken = value, 0
    for name in sorted(names_in({key: part for key, part in value.items() if key != "head"})):
        more = renamed(together, name, f"{NAME}{taken}")
        if is_taken(kind, written(more)):
            together, taken = more, taken + 1
    assert taken
    for text in outputs(kind, written(together)):
        assert not text.startswith("Error: ")
        assert not RAW & set(text), text
        assert "<html" not in text or "<img src=x>" not in text
