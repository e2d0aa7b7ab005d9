"""The places that print: what they print of others is made harmless by a function that does nothing else."""

from __future__ import annotations

import ast
import logging
import re
import warnings
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from dask_efficiency.cli.commands import LazyGroup
from dask_efficiency.cli.output import tell
from dask_efficiency.show.log import logger
from tests.trees import PACKAGE, nodes

#: A name that clears the screen, hides what follows it, and writes a line of its own.
EVIL = "w\x1b[2J\u202e\nERROR all is lost"
ESCAPED = r"w\x1b[2J\u202e\nERROR all is lost"

#: Give text that may be printed wherever a name is in it.
MAKES_HARMLESS = {"harmless", "name_of", "named", "sentence", "dumps"}
#: Give figures.
GIVES_FIGURES = {"len", "format_seconds", "format_bytes", "format_count", "format_share", "instant"}

#: Functions that print. Of the logger's, the arguments are harmless, as a filter of it makes them.
PRINTS = {"print", "echo", "secho", "warn", "warn_explicit"}

#: All that print something that is not harmless by its form, and why it is.
PRINTED = {
    # of `tell`, made harmless line by line, as in Markdown
    "cli/output.py": ["text", "markdown(found.document if everything else found.first_screen)"],
    "live/top.py": ["plain(view, width=width, height=height)", "next(gaps)"],  # drawn: tests/live/test_terminal.py
    "fleet/watch.py": ["str(left)", "why"],  # given to `tell`
    # its own names and numbers
    "report/demo.py": [
        *("client.dashboard_link", "_where_next(output)", "part.name", "part.obstacle", "threads", "workers"),
    ],
    "show/terminal.py": [
        "Group(*renderables(document, console, console.options))",
        "plain(document, shutil.get_terminal_size().columns)",
    ],
    # warnings of other libraries, given back as they were
    "fleet/cli.py": ["one.message", "one.category", "one.filename", "one.lineno"],
    "simulation/cli.py": ["warning.message", "warning.category", "warning.filename", "warning.lineno"],
    # its own words and numbers
    "preflights/client.py": ["stopped"],
    "show/progress.py": ["unit"],
    # numbers, and settings by name
    "simulation/calls.py": ["judged.doubt"],
}


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def raw(node: ast.expr) -> Iterator[str]:
    """What in an expression may be a name as somebody else wrote it."""
    if isinstance(node, ast.Constant) or (isinstance(node, ast.Call) and called(node) in MAKES_HARMLESS):
        return
    if isinstance(node, ast.JoinedStr):
        for part in node.values:
            yield from raw(part)
    elif isinstance(node, ast.FormattedValue):
        is_number = node.format_spec is not None and re.search("[dfgeb,]$", ast.unparse(node.format_spec)[2:-1])
        if node.conversion != ord("r") and not is_number:
            yield from raw(node.value)
    elif isinstance(node, ast.BinOp):
        yield from raw(node.left)
        yield from raw(node.right)
    elif isinstance(node, ast.IfExp):
        yield from raw(node.body)
        yield from raw(node.orelse)
    elif not (isinstance(node, ast.Call) and called(node) in GIVES_FIGURES) and not re.fullmatch(
        r"type\([\w.]+\)\.__name__|[A-Z_]+", ast.unparse(node)
    ):
        yield ast.unparse(node)


def test_every_module_that_prints_a_name_makes_it_harmless_or_is_listed_here() -> None:
    found: dict[str, list[str]] = {}
    for path, tree in nodes().items():
        printed = [
            text
            for node in tree
            if isinstance(node, ast.Call) and called(node) in PRINTS and not isinstance(node.func, ast.Subscript)
            for text in [each for argument in node.args for each in raw(argument)]
            if text not in ("RuntimeWarning", "SimulationWarning", "StoppedWarning")
        ]
        if printed:
            found[path] = printed
    assert {path: sorted(set(texts)) for path, texts in found.items()} == {
        path: sorted(texts) for path, texts in PRINTED.items() if (PACKAGE / path).exists()
    }


def test_all_modules_log_by_the_logger_that_makes_names_harmless() -> None:
    others = [
        path
        for path, tree in nodes().items()
        if any(isinstance(node, ast.Call) and called(node) == "getLogger" for node in tree)
    ]
    # The first travels by value, and says what it says by its repr.
    assert others == ["plugin/bootstrap.py", "show/log.py"]
    assert '"This worker is not metered: %r"' in (PACKAGE / "plugin" / "bootstrap.py").read_text()


#: What errors say of workers, tasks and machines that is no name of another's: numbers, and names that were checked.
IN_ERRORS = {
    "accounts/wire/heartbeats.py": ["group"],
    "simulation/model/cluster_file.py": ["workers"],
    "torch_traces/kineto/parse.py": ["self.key"],
}
IS_A_NAME = re.compile(
    r"\b\w*(worker|host|subject|key|prefix|label|machine|span|device|uuid|group|annotation)s?(\.name)?(\[.*\])?$"
)


def test_errors_quote_the_names_of_workers_tasks_and_machines() -> None:
    found: dict[str, list[str]] = {}
    for path, tree in nodes().items():
        for node in tree:
            if isinstance(node, ast.Raise) and node.exc is not None:
                pieces = [text for each in ast.walk(node.exc) if isinstance(each, ast.JoinedStr) for text in raw(each)]
                if names := sorted({text for text in pieces if IS_A_NAME.search(text)}):
                    found.setdefault(path, []).extend(names)
    assert found == {path: names for path, names in IN_ERRORS.items() if (PACKAGE / path).exists()}


def test_a_name_in_a_log_stays_on_its_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "dask_efficiency"):
        logger.warning("Straggler: %s", EVIL)
        try:
            raise ValueError(EVIL)
        except ValueError:
            logger.exception("%s failed", EVIL)
    first, second = caplog.records
    assert first.getMessage() == f"Straggler: {ESCAPED}"
    assert second.getMessage() == f"{ESCAPED} failed"
    text = logging.Formatter().format(second)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "Traceback" in text


def test_a_name_in_a_line_or_an_error_of_a_command_stays_on_its_line() -> None:
    @click.command("tells")
    def tells() -> None:
        tell(f"{EVIL} is slow", err=True, fg="red")
        raise click.ClickException(f"no {EVIL}")

    group = LazyGroup("main", table={"tells": (f"{__name__}:tells", "")})
    group.get_command = lambda context, name: tells  # type: ignore[method-assign]
    result = CliRunner().invoke(group, ["tells"])
    assert result.output.splitlines() == [f"{ESCAPED} is slow", f"Error: no {ESCAPED}"]


def test_the_line_of_a_watch_about_a_machine_stays_one_line() -> None:
    pytest.importorskip("dask_efficiency.fleet")
    from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker
    from dask_efficiency.fleet.rounds.rounds import Event, FindingChange, as_line

    slow = SlowWorker(
        EVIL, EVIL, next(iter(Cause)), 9.0, 0.9, 0.0, None, 0.0, (Evidence(EVIL, 1.0, 2.0, 3.0, 4.0, 5.0, 6),), (EVIL,)
    )
    for change in FindingChange:
        assert "\x1b" not in as_line(Event(change, 0.0, slow))
        assert "\n" not in as_line(Event(change, 0.0, slow))


def test_a_warning_names_a_report_and_a_failure_on_one_line() -> None:
    from dask_efficiency import efficiency_report

    report = efficiency_report(name=EVIL)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for outcome in ("there is no report", f"the report is not in {EVIL!r}"):
            with report._harmless(outcome):
                raise OSError(EVIL)
    assert len(caught) == 2
    for each in caught:
        assert "\x1b" not in str(each.message)
        assert "\n" not in str(each.message)
