import asyncio
import contextlib
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.plugin.source import SourceLine, block_at, bounded, calling_line, recorded


class block:  # noqa: N801  # reads as what it stands for
    """Remembers where its ``with`` statement is."""

    def __enter__(self) -> "block":
        self.place = calling_line(sys._getframe(1))
        return self

    def __exit__(self, *error: Any) -> None: ...

    async def __aenter__(self) -> "block":
        self.place = calling_line(sys._getframe(1))
        return self

    async def __aexit__(self, *error: Any) -> None: ...


def test_a_block_is_shown_without_the_code_around_it() -> None:
    with block() as found:
        text = """
not indented
"""
    assert block_at(found.place) == ('with block() as found:\n    text = """\nnot indented\n"""',)
    assert text == "\nnot indented\n"


def test_the_innermost_block_that_begins_there_is_shown() -> None:
    with contextlib.nullcontext():
        found = block()
        with contextlib.nullcontext(), found:
            last = False
    assert block_at(found.place) == ("with contextlib.nullcontext(), found:\n    last = False",)
    with (
        block() as found,
        contextlib.nullcontext(),
    ):
        last = True
    assert block_at(found.place)[0].startswith("with (\n    block() as found,")
    assert block_at(found.place)[0].endswith("last = True")
    assert last


def test_an_asynchronous_block_is_shown() -> None:
    async def main() -> Any:
        async with block() as found:
            await asyncio.sleep(0)
        return found.place

    assert block_at(asyncio.run(main())) == ("async with block() as found:\n    await asyncio.sleep(0)",)


def test_a_block_entered_by_a_stack_is_that_of_the_stack() -> None:
    secret = "outside"
    with contextlib.nullcontext(), contextlib.ExitStack() as stack:
        found = block()
        with contextlib.nullcontext():
            stack.enter_context(found)
    (code,) = block_at(found.place)
    assert code.startswith("with contextlib.nullcontext(), contextlib.ExitStack() as stack:\n    found = block()")
    assert code.endswith("stack.enter_context(found)")
    assert secret not in code


def test_code_without_source_shows_nothing() -> None:
    names: dict[str, Any] = {"block": block}
    exec("with block() as found: pass", names)
    assert block_at(names["found"].place) == ()
    assert block_at(calling_line(None)) == ()


def test_a_block_is_found_by_any_line_of_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text("with (\n    one(),\n    two(),\n):\n    pass\npast = 1\n")
    for lineno in (1, 2, 3, 4):
        assert block_at(SourceLine(str(file), lineno, {})) == ("with (\n    one(),\n    two(),\n):\n    pass",)


@pytest.mark.parametrize(
    ("text", "lineno"),
    [
        # A stack of a module's, or of a function's, that no `with` closes.
        ("PASSWORD = 1\nstack = ExitStack()\nstack.enter_context(report)\n", 3),
        ("PASSWORD = 1\ndef f():\n    stack.enter_context(report)\n", 3),
        ("%%time\nwith report():\n    pass\n", 2),  # no Python
        ("with report():\n    pass\n" + "PASSWORD = 1\n" * 100_000, 1),  # far too large
    ],
    ids=["a module's stack", "a function's stack", "a cell with magics", "a large file"],
)
def test_nothing_is_shown_of_a_file_without_such_a_block(tmp_path: Path, text: str, lineno: int) -> None:
    file = tmp_path / "file.py"
    file.write_text(text)
    assert block_at(SourceLine(str(file), lineno, {})) == ()


@pytest.fixture
def spans() -> dict[str, Any]:
    code = namedtuple("SourceCode", "code filename")
    return {
        "mine": SimpleNamespace(code=[(code("    def f():\n        compute()\n", "a"), code("x = 1", "b"))]),
        "twice": SimpleNamespace(code=[(code("x = 1", "b"),)]),
        "other": SimpleNamespace(code=[(code("secret = 1", "c"),)]),
    }


def test_recorded_code_of_own_spans_is_shown_once(spans: dict[str, Any]) -> None:
    assert recorded(spans, ["mine", "gone", "twice"]) == ("def f():\n    compute()", "x = 1")
    assert recorded(spans, []) == ()


def test_long_code_is_cut_with_a_note() -> None:
    assert bounded(["a" * 7_000, "b" * 1_000]) == ("a" * 7_000, "b" * 1_000)
    cut = bounded(["a" * 7_970, "b" * 30, "c"])
    assert cut == ("a" * 7_970, "b" * 8, "# 23 more characters")
    assert bounded(cut) == cut


def test_blocks_are_found_in_many_threads_at_once() -> None:
    """In a process of its own, whose garbage collector lets other threads in as often as can be."""
    program = """
import ast, gc, sys, threading
from pathlib import Path
from dask_efficiency.plugin.source import SourceLine, block_at

sys.setswitchinterval(1e-6)
gc.set_threshold(50)
gc.callbacks.append(lambda *args: sum(range(50)))
found = []

lines = Path(ast.__file__).read_text().splitlines()
number = next(i for i, line in enumerate(lines, 1) if line.strip().startswith("with self."))
place = SourceLine(ast.__file__, number, {})

def look():
    for _ in range(3):
        try:
            found.append(len(block_at(place)))
        except SystemError as error:
            found.append(error)

threads = [threading.Thread(target=look) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert found == [1] * 18, found
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
