"""``%%efficiency`` and ``%efficiency``: the report of a cell or an expression, below the cell.

IPython runs a cell that begins with ``%%efficiency`` as any other: its first line becomes a call that opens the report,
and the report is closed and displayed when IPython signals the end of the cell. So top-level ``await``, tracebacks,
``Out`` and ``_``, a semicolon at the end, and ``%%capture`` around it work as usual. Running the lines from within a
magic would change each of these. If the cell fails, its report is closed before IPython renders the traceback: that may
take seconds, which are not the cell's.
"""

from __future__ import annotations

import ast
import math
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distributed import get_client
from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import cell_magic
from IPython.core.magic import Magics, line_cell_magic, magics_class, needs_local_scope, no_var_expand
from IPython.display import display

from dask_efficiency.plugin.source import bounded
from dask_efficiency.report.efficiency_report import efficiency_report
from dask_efficiency.show.terminal import plain

NAME = "%%efficiency"
#: Replaces the line of the magic.
_BEGIN = "get_ipython().magics_manager.registry['EfficiencyMagics'].begin({line!r})\n"

NO_CLIENT = (
    "there is no Dask client, so no cluster to report of; make one first, on this machine by "
    "`from distributed import Client, LocalCluster; client = Client(LocalCluster())`"
)


@dataclass(slots=True)
class Measured:
    """Report of a cell or of an expression, its name and its source."""

    report: efficiency_report
    #: Variable to keep the report in; may be empty.
    keep: str
    name: str
    code: str
    #: IPython's record of the cell's execution; None for an expression.
    execution: Any = None
    closed: bool = False

    def close(self, error: BaseException | None) -> None:
        """Close the report, which has the error that ended the cell."""
        if not self.closed:
            self.closed = True
            self.report.__exit__(None if error is None else type(error), error, None)


def plain_cell(lines: list[str]) -> list[str]:
    """Turn a cell that begins with ``%%efficiency`` into a plain one that first opens its report.

    Further cell magics may follow that line. A cell without further lines, or a question (``%%efficiency?``), is left
    to IPython.
    """
    name, *rest = lines[0].split(maxsplit=1) if lines else [""]
    if name != NAME or not "".join(lines[1:]).strip():
        return lines
    return [_BEGIN.format(line="".join(rest).strip()), *cell_magic(lines[1:])]


# A terminal transforms input to see if it is complete; with this it waits for the lines below the magic.
plain_cell.has_side_effects = True  # type: ignore[attr-defined]


@magics_class
class EfficiencyMagics(Magics):
    """Magics of one IPython shell, and its open reports."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        #: Executions of the running cells, the innermost last.
        self._running: list[Any] = []
        self._open: list[Measured] = []

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    def efficiency(self, line: str, cell: str | None = None, local_ns: dict[str, Any] | None = None) -> Any:
        """Show where the cluster's threads spent the time in a cell, or in an expression.

        As a cell magic, it runs the cell, and shows the report below it, also if the cell fails or is interrupted::

            %%efficiency [-o NAME] [--trace] [--savings SECONDS] [--only]
            df.groupby("name").x.mean().compute()

        As a line magic, it has the value of the expression, which cannot await::

            means = %efficiency df.groupby("name").x.mean().compute()

        It reports the cluster of the current client. The plugin is registered while reports are open; an existing one
        stays as it is.

        Options:

        -o NAME
            Keep the report in this variable, for ``NAME.show()``, ``NAME.to_html("run.html")`` and so on.
        --trace
            Record each task and transfer as well, for the critical path and for how much each finding saves.
        --savings SECONDS
            Simulate cures for this long at most, with ``--trace``; 5 by default.
        --only
            Report only what this client runs, where others use the cluster, too.
        """
        if cell is not None:  # called by another magic or by a function
            self.shell.run_cell(f"{NAME} {line}\n{cell}")
            return None
        options, expression = self._options(line)
        if not expression:
            raise UsageError("%efficiency takes an expression, such as `%efficiency df.x.mean().compute()`")
        measured = self._begun(options, f"%efficiency {line}")
        error: BaseException | None = None
        try:
            return self._value_of(expression, local_ns)
        except BaseException as raised:
            error = raised
            raise
        finally:
            if measured is not None:
                self._end(measured, error)

    def begin(self, line: str) -> None:
        """Open the report of the running cell."""
        options, more = self._options(line)
        if more:
            raise UsageError(f"{NAME} takes no expression, but lines below it; got {more!r:.80}")
        running = self._running[-1] if self._running else None
        measured = self._begun(options, getattr(running, "raw_cell", ""), running)
        if measured is not None:
            self._open.append(measured)

    def cell_begins(self, execution: Any) -> None:
        """Note the start of a cell, possibly within another, as with ``%%capture``."""
        self._running.append(execution)

    def cell_fails(self, error: BaseException | None) -> None:
        """Close the report of the running cell, whose traceback will be shown."""
        if self._open and self._running and self._open[-1].execution is self._running[-1]:
            self._open[-1].close(error)

    def cell_ends(self, result: Any) -> None:
        """Close and show the report of a cell that has ended; no result if all were interrupted."""
        error = KeyboardInterrupt() if result is None else result.error_in_exec
        while self._open and (result is None or self._open[-1].execution is result.info):
            self._end(self._open.pop(), error)
        if result is None:
            self._running.clear()
        elif self._running and self._running[-1] is result.info:
            self._running.pop()

    def showing(self, showtraceback: Callable[..., Any]) -> Callable[..., Any]:
        """Replacement for the shell's method that shows the traceback of a cell that has failed."""

        def shown(*given: Any, **options: Any) -> Any:
            if options.get("running_compiled_code"):
                self.cell_fails(sys.exc_info()[1])
            return showtraceback(*given, **options)

        return shown

    def _options(self, line: str) -> tuple[dict[str, str], str]:
        known = ("trace", "only", "savings=")
        given, rest = self.parse_options(line, "o:", *known, posix=False, strict=False, preserve_non_opts=True)
        keep = given.get("o", "")
        if keep and not keep.isidentifier():
            raise UsageError(f"-o is {keep!r:.80}; expected the name of a variable, such as `-o report`")
        if "savings" in given and "trace" not in given:
            raise UsageError("--savings is for the simulation of a recorded run; expected --trace with it")
        _seconds(given)
        return given, rest.strip()

    def _begun(self, options: dict[str, str], code: str, execution: Any = None) -> Measured | None:
        """Open a report; None, with a line that says why, if there can be none: the cell runs all the same."""
        try:
            client = get_client()
        except ValueError:
            raise UsageError(NO_CLIENT) from None
        traced, only = "trace" in options, "only" in options
        report = efficiency_report(client=client, trace=traced, savings=_seconds(options), only=only)
        try:
            report.__enter__()
        except RuntimeError as error:  # an asynchronous client, or a scheduler without the package
            sys.stderr.write(f"{NAME} runs this without a report: {error}\n")
            return None
        name = f"cell {self.shell.displayhook.prompt_count}"
        return Measured(report, options.get("o", ""), name, code, execution)

    def _value_of(self, expression: str, local_ns: dict[str, Any] | None) -> Any:
        """Value of the last statement; None if it is no expression, or ends with a semicolon."""
        compiler = self.shell.compile
        source = self.shell.transform_cell(expression)
        file = compiler.cache(source, self.shell.displayhook.prompt_count)
        statements: Sequence[ast.stmt] = self.shell.transform_ast(compiler.ast_parse(source, file)).body
        value = None
        for statement in statements:
            if isinstance(statement, ast.Expr):
                value = eval(compiler(ast.Expression(statement.value), file, "eval"), self.shell.user_ns, local_ns)
            else:
                exec(compiler(ast.Module([statement], []), file, "exec"), self.shell.user_ns, local_ns)
                value = None
        return None if expression.endswith(";") else value

    def _end(self, measured: Measured, error: BaseException | None) -> None:
        measured.close(error)
        try:
            report = measured.report.report
        except RuntimeError:  # there is no report, after a warning
            return
        code = bounded([measured.code]) if measured.report.holds_source else ()
        report = replace(report, name=measured.name, code=code)
        if measured.keep:
            self.shell.user_ns[measured.keep] = report
        try:
            first = replace(report.first_screen, last=(_more(measured.keep),))
            display({"text/plain": plain(first), "text/html": report._repr_html_()}, raw=True)
        except Exception as failure:  # the value of an expression must not be lost with its report
            warnings.warn(f"the report {measured.name!r} cannot be shown: {failure!r}", RuntimeWarning, stacklevel=2)


def _seconds(options: Mapping[str, str]) -> float | None:
    if (given := options.get("savings")) is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"--savings is {given!r:.80}; expected seconds, 0 or more, such as `--savings 60`")
    return seconds


def _more(kept: str) -> str:
    if not kept:
        return f"More: `{NAME} -o report` keeps the report, and report.show() then prints all of it."
    return f"More: {kept}.show() prints all of it; {kept}.to_html(path) writes a page."


def load_ipython_extension(ipython: Any) -> None:
    """Add the magics; called by ``%load_ext dask_efficiency``."""
    magics = EfficiencyMagics(ipython)
    ipython.register_magics(magics)
    ipython.input_transformers_cleanup.append(plain_cell)
    ipython.events.register("pre_run_cell", magics.cell_begins)
    ipython.events.register("post_run_cell", magics.cell_ends)
    ipython.showtraceback = magics.showing(ipython.showtraceback)


def unload_ipython_extension(ipython: Any) -> None:
    """Remove the magics; called by ``%unload_ext dask_efficiency``."""
    manager = ipython.magics_manager
    magics = manager.registry.pop(EfficiencyMagics.__name__)
    for kind in ("line", "cell"):
        del manager.magics[kind]["efficiency"]
    ipython.input_transformers_cleanup.remove(plain_cell)
    ipython.events.unregister("pre_run_cell", magics.cell_begins)
    ipython.events.unregister("post_run_cell", magics.cell_ends)
    del ipython.showtraceback
