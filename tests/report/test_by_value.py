from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from dask_efficiency.accounts.profile import Frame
from dask_efficiency.report import by_value
from dask_efficiency.report.by_value import in_the_script

SCRIPT = """\
from dask import delayed

@delayed
def read_day(day):
    def inner():
        return day
    return inner()

class Store:
    def get(self, key):
        return key

if True:
    async def late():
        return 1
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    file = tmp_path / "slow_job.py"
    file.write_text(SCRIPT)
    main = ModuleType("__main__")
    main.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", main)
    by_value._functions.cache_clear()
    return str(file)


@pytest.mark.parametrize(
    ("function", "line"),
    [("read_day", 5), ("read_day.<locals>.inner", 6), ("Store.get", 11), ("late", 15)],
)
def test_a_function_of_the_script_has_its_file(script: str, function: str, line: int) -> None:
    assert in_the_script(Frame(function, "<dynamic-code>", line)) == Frame(function, script, line)


@pytest.mark.parametrize(
    "frame",
    [
        Frame("read_day", "<dynamic-code>", 11),  # another function of this name
        Frame("other", "<dynamic-code>", 5),
        Frame("read_day", "etl.py", 5),
        Frame("read_day", "<ipython-input-3>", 5),
    ],
)
def test_what_the_script_does_not_have_stays_as_it_is(script: str, frame: Frame) -> None:
    assert in_the_script(frame) is frame


@pytest.mark.parametrize("content", ["def read_day(:", None])
def test_a_script_that_cannot_be_read_names_nothing(
    script: str, content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "slow_job.py"
    file.unlink() if content is None else file.write_text(content)
    frame = Frame("read_day", "<dynamic-code>", 5)
    assert in_the_script(frame) is frame


def test_without_a_script_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    frame = Frame("read_day", "<dynamic-code>", 5)
    assert in_the_script(frame) is frame
