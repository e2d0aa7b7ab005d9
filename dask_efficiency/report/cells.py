"""Cells: what IPython calls the code that people type in, where this process is an IPython's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any


def typed_in() -> Iterator[tuple[str, str]]:
    """Name and source of each cell that ran, the latest first; nothing outside IPython."""
    shell = _shell()
    cells = [] if shell is None else shell.history_manager.input_hist_parsed
    for number in range(len(cells) - 1, 0, -1):
        yield f"In[{number}]", cells[number]


def cell_of(file: str) -> str:
    """The cell that IPython has given a file to, as its tracebacks call it; of any other, the file."""
    shell = _shell()
    known = None if shell is None else shell.compile.format_code_name(file)
    return file if known is None else str(known[1])


def _shell() -> Any:
    """The shell of this process, if IPython is there and runs one."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # a shell without a history, or of before cells had names, has none to tell
    usable = hasattr(getattr(shell, "compile", None), "format_code_name") and getattr(shell, "history_manager", None)
    return shell if usable else None
