import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from dask_efficiency.accounts.lines import Frame
from dask_efficiency.report import source_files
from dask_efficiency.report.client_watch import users_line
from dask_efficiency.report.source_files import cell_of, in_the_script, typed_in

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

fails = lambda day: 1 / day
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    file = tmp_path / "slow_job.py"
    file.write_text(SCRIPT)
    main = ModuleType("__main__")
    main.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", main)
    source_files._functions.cache_clear()
    return str(file)


@pytest.mark.parametrize(
    ("function", "line"),
    [
        *[("read_day", 5), ("read_day.<locals>.inner", 6), ("Store.get", 11), ("late", 15)],
        *[("inner", 6), ("get", 11), ("<lambda>", 17)],  # as tracebacks name them
    ],
)
def test_a_function_of_the_script_has_its_file(script: str, function: str, line: int) -> None:
    assert in_the_script(Frame(function, "<dynamic-code>", line)) == Frame(function, script, line)


def test_frames_of_other_files_and_functions_stay_as_they_are(script: str) -> None:
    same_name = Frame("read_day", "<dynamic-code>", 11)
    others = (
        Frame("other", "<dynamic-code>", 5),
        Frame("read_day", "etl.py", 5),
        Frame("read_day", "<ipython-input-3>", 5),
    )
    for frame in (same_name, *others):
        assert in_the_script(frame) is frame


@pytest.mark.parametrize("wrong", ["syntax", "no file", "no script"])
def test_without_a_readable_script_nothing_is_named(script, wrong, tmp_path, monkeypatch):
    file = tmp_path / "slow_job.py"
    if wrong == "no script":
        monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    else:
        file.unlink() if wrong == "no file" else file.write_text("def read_day(:")
    frame = Frame("read_day", "<dynamic-code>", 5)
    assert in_the_script(frame) is frame


@pytest.fixture
def shell() -> Iterator[Any]:
    shell = InteractiveShell.instance()
    yield shell
    InteractiveShell.clear_instance()


DEFINES = """\
def read_day(day):
    return sum(n for n in day)

class Store:
    def get(self, key):
        return lambda: key
"""


def test_cells_and_lines_that_send_graphs_are_called_as_ipythons_tracebacks_call_them(shell: Any) -> None:
    shell.user_ns["users_line"] = users_line
    shell.run_cell("import sys\nline = users_line(frame := sys._getframe())", store_history=True)
    assert shell.user_ns["line"] == ("In[1]:2", "line = users_line(frame := sys._getframe())")
    shell.run_cell("%%time\nmagic = users_line(sys._getframe())", store_history=True)
    assert shell.user_ns["magic"] == ("In[2]:1", "")
    assert cell_of(shell.user_ns["frame"].f_code.co_filename) == "In[1]"
    assert cell_of("etl.py") == "etl.py"
    assert [name for name, _ in typed_in()] == ["In[2]", "In[1]"]


def test_a_function_that_travelled_by_value_has_the_last_cell_that_defines_it(shell: Any) -> None:
    shell.run_cell(DEFINES, store_history=True)
    shell.run_cell("%time " + "read_day([1])", store_history=True)
    for function, line in [("read_day", 2), ("read_day.<locals>.<genexpr>", 2), ("Store.get.<locals>.<lambda>", 6)]:
        assert in_the_script(Frame(function, "<dynamic-code>", line)).file == "In[1]"
    other = Frame("write_day", "<dynamic-code>", 2)
    assert in_the_script(other) is other
    shell.run_cell(DEFINES, store_history=True)
    assert in_the_script(Frame("read_day", "<dynamic-code>", 2)).file == "In[3]"
    shell.history_manager.input_hist_parsed.append("read_day(")  # no Python
    assert in_the_script(Frame("read_day", "<dynamic-code>", 2)).file == "In[3]"


def test_a_lambda_is_of_the_last_cell_that_has_one_at_its_line(shell: Any) -> None:
    frame = Frame("<lambda>", "<dynamic-code>", 1)
    for cell in ("fails = lambda n: 1 / n", "day = 3", "day = lambda n: n", "day = 4"):
        shell.run_cell(cell, store_history=True)
    assert in_the_script(frame).file == "In[3]"


def test_ipython_is_not_imported_to_find_that_there_is_none() -> None:
    names = "from dask_efficiency.report.source_files import cell_of, typed_in"
    check = f"{names}; assert not list(typed_in()); cell_of('a')"
    subprocess.run([sys.executable, "-c", f"import sys; {check}; assert 'IPython' not in sys.modules"], check=True)
