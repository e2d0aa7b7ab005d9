from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from dask_efficiency.accounts.profile import Frame
from dask_efficiency.report.by_value import in_the_script
from dask_efficiency.report.cells import cell_of, typed_in
from dask_efficiency.report.phases import users_line


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


def test_cells_are_called_as_ipythons_tracebacks_call_them(shell: Any) -> None:
    shell.run_cell("import sys\nframe = sys._getframe()", store_history=True)
    file = shell.user_ns["frame"].f_code.co_filename
    assert cell_of(file) == "In[1]"
    assert cell_of("etl.py") == "etl.py"
    assert [name for name, _ in typed_in()] == ["In[1]"]


def test_a_line_that_sends_a_graph_is_that_of_its_cell(shell: Any) -> None:
    shell.user_ns["users_line"] = users_line
    shell.run_cell("import sys\nline = users_line(sys._getframe())", store_history=True)
    assert shell.user_ns["line"] == ("In[1]:2", "line = users_line(sys._getframe())")


def test_a_function_that_travelled_by_value_has_the_last_cell_that_defines_it(shell: Any) -> None:
    shell.run_cell(DEFINES, store_history=True)
    shell.run_cell("%time " + "read_day([1])", store_history=True)
    for function, line in [("read_day", 2), ("read_day.<locals>.<genexpr>", 2), ("Store.get.<locals>.<lambda>", 6)]:
        assert in_the_script(Frame(function, "<dynamic-code>", line)).file == "In[1]"
    other = Frame("write_day", "<dynamic-code>", 2)
    assert in_the_script(other) is other
    shell.run_cell(DEFINES, store_history=True)
    assert in_the_script(Frame("read_day", "<dynamic-code>", 2)).file == "In[3]"


def test_a_cell_that_is_no_python_is_passed_over(shell: Any) -> None:
    shell.run_cell(DEFINES, store_history=True)
    shell.history_manager.input_hist_parsed.append("read_day(")
    assert in_the_script(Frame("read_day", "<dynamic-code>", 2)).file == "In[1]"


def test_ipython_is_not_imported_to_find_that_there_is_none() -> None:
    check = (
        "import sys; from dask_efficiency.report import cells; assert not list(cells.typed_in()); cells.cell_of('a')"
    )
    subprocess.run([sys.executable, "-c", f"{check}; assert 'IPython' not in sys.modules"], check=True)
