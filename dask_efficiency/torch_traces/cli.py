"""`dask-efficiency torch`: where a PyTorch program's time went, and why it took so long, by what its profiler wrote."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from dask_efficiency.cli.inputs import InputKind, is_address, is_file, look_at
from dask_efficiency.cli.options import (
    chrome_options,
    html_option,
    json_option,
    percent,
    save_option,
    what_if_option,
    without_option,
)
from dask_efficiency.cli.output import NotJudgedError, one_line_errors, say
from dask_efficiency.runs.trace.errors import EmptyTraceError, UnknownNameError
from dask_efficiency.torch_traces.kineto.errors import UnknownAnnotationError, UnknownRankError

if TYPE_CHECKING:
    from dask_efficiency.torch_traces.path.path import TorchCriticalPath

#: Names of :data:`dask_efficiency.torch_traces.path.speeds.WITHOUT`, here without numpy; a test compares the two.
WITHOUT = ("kernel-launch", "kernel-gap", "gpu-communication", "gpu-sync", "data-loading")


def _instance(context: click.Context, parameter: click.Parameter, value: str | None) -> int | tuple[int, int] | None:
    if value is None:
        return None
    parsed = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", value)
    if not parsed:
        raise click.BadParameter(f"{value!r} is not a number such as 1, or the first and the last such as 1:3")
    return int(parsed[1]) if parsed[2] is None else (int(parsed[1]), int(parsed[2]))


@click.command("path")
@click.argument("files", nargs=-1, required=True)
@click.option("--annotation", default="", metavar="NAME", help="Only what is in an annotation with this in its name.")
@click.option(
    "--instance", callback=_instance, metavar="N|N:M", help="Which one of these, from 0, or the first and the last."
)
@click.option("--rank", type=int, help="Only this rank. [default: one path over all]")
@click.option(
    "--data-loading",
    multiple=True,
    metavar="PATTERN",
    help="Events of the CPU with this regular expression in their names load data.",
)
@click.option(
    "--execution-trace",
    metavar="FILE",
    help="The execution trace (PyTorch's or Chakra's) of the only file: which operators need whose data.",
)
@what_if_option
@without_option(*WITHOUT)
@chrome_options(only_critical=True)
@click.option("--all-edges", is_flag=True, help="With --chrome: everything, and every arrow of the graph.")
@save_option("the path")
@html_option
@json_option
def command(
    files: tuple[str, ...],
    speed_up: dict[str, float],
    without: tuple[str, ...],
    chrome: str | None,
    only_critical: bool,
    all_edges: bool,
    save: str | None,
    html: str | None,
    as_json: bool,
    execution_trace: str | None,
    **asked: Any,
) -> None:
    """Show what the GPUs and threads of PyTorch waited for.

    FILES are traces that `torch.profiler` wrote (Kineto: `prof.export_chrome_trace`, `tensorboard_trace_handler`),
    compressed or not: files, URLs, folders or patterns such as 'traces/*.json.gz', one rank each; or one file that
    --save wrote.

    --what-if is for kernels or operators with this in their names. With it, or --without, all weights and instants are
    worked out anew, and what is written is the changed path; the answer is an estimate.
    """
    if all_edges and chrome is None:
        raise click.UsageError("--all-edges needs --chrome FILE")
    changes: dict[str, Any] = {"speed_up": speed_up, "without": without}
    with one_line_errors(UnknownNameError, UnknownRankError, UnknownAnnotationError):
        recorded = _found(files, execution_trace, asked)
        changed = recorded.what_if(**changes) if any(changes.values()) else None
        path = changed or recorded
        if chrome is not None:
            path.to_chrome(chrome, only_critical=only_critical and not all_edges, all_edges=all_edges)
        if html is not None:
            path.to_html(html)
        if save is not None:
            path.save(save)
        if as_json and changed is not None:
            click.echo(json.dumps(recorded.to_dict() | {"what_if": changed.to_dict() | {"changes": changes}}, indent=1))
        elif changed is not None:
            from dask_efficiency.show.terminal import show
            from dask_efficiency.torch_traces.sections import what_if_document

            show(what_if_document(recorded, changed))
        else:
            say(recorded, as_json=as_json, written=any(file is not None for file in (chrome, html, save)))


def _found(files: tuple[str, ...], execution_trace: str | None, asked: dict[str, Any]) -> TorchCriticalPath:
    from dask_efficiency.torch_traces.kineto.load import load_kineto
    from dask_efficiency.torch_traces.path.files import load_critical_path
    from dask_efficiency.torch_traces.path.path import critical_path

    saved = _look(files)
    if saved is None:
        trace = load_kineto(files[0] if len(files) == 1 else list(files), execution_trace=execution_trace)
        return critical_path(trace, **asked)
    if execution_trace or any(value not in (None, "", ()) for value in asked.values()):
        raise click.UsageError(f"{saved} is a saved path, which has its annotation, instance and rank already")
    return load_critical_path(saved)


def _look(files: tuple[str, ...]) -> str | None:
    """The only file, if it is a saved path. A file of another kind is refused, with what can be done with it."""
    if len(files) > 1 or not (is_address(files[0]) or is_file(files[0])):
        return None
    given = look_at(files[0])
    if given.kind is InputKind.TORCH_PATH:
        return given.where
    if given.kind not in (InputKind.KINETO, InputKind.CHROME, InputKind.OTHER):
        from dask_efficiency.torch_traces.kineto.load import EXPECTED

        raise given.refusal(EXPECTED)
    return None


@click.command("summary")
@click.argument("files", nargs=-1, required=True)
@click.option("--rank", type=int, help="Only this rank. [default: all]")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Most rows of a table.")
@html_option
@json_option
def summary_command(files: tuple[str, ...], rank: int | None, top: int, html: str | None, as_json: bool) -> None:
    """Show where the time of a PyTorch job went.

    FILES are traces that `torch.profiler` wrote (Kineto: `prof.export_chrome_trace`, `tensorboard_trace_handler`),
    compressed or not: files, URLs, folders or patterns such as 'traces/*.json.gz', one rank each.
    """
    from dask_efficiency.torch_traces.summaries.summary import summary

    with one_line_errors(UnknownRankError, EmptyTraceError):
        _look(files)
        found = replace(summary(files[0] if len(files) == 1 else list(files)), top=top)
        found = found if rank is None else found.rank(rank)
        if html is not None:
            found.to_html(html)
        say(found, as_json=as_json, written=html is not None)


@click.command("compare")
@click.argument("old")
@click.argument("new")
@click.option(
    "--fail-on-worse",
    callback=percent,
    metavar="PERCENT",
    help="End with exit code 1 if the median step takes longer by more than this, such as 10%, and by more than steps "
    "vary.",
)
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Most rows of a table.")
@html_option
@json_option
def compare_command(
    old: str, new: str, fail_on_worse: Fraction | None, top: int, html: str | None, as_json: bool
) -> None:
    """Show what changed between two traces of PyTorch.

    Kernels and operators that are new, gone, slower or more often, steps by median and spread, and ranks by number. OLD
    and NEW are each a file, a URL, a folder, or a pattern in quotes.

    \b
    Exit codes:
      0  compared
      1  the median step takes longer by more than --fail-on-worse allows
      2  not compared: a wrong option, an unreadable file, or --fail-on-worse
         and traces without steps of the profiler, or with one step of each rank
    """  # noqa: D301 click wants the character
    from dask_efficiency.torch_traces.summaries.comparison import compare

    with one_line_errors(EmptyTraceError, kind=NotJudgedError):
        for side in (old, new):
            _look((side,))
        found = replace(compare(old, new), top=top)
        if html is not None:
            found.to_html(html)
        say(found, as_json=as_json, written=html is not None)
        if fail_on_worse is not None and not found.has_steps:
            raise NotJudgedError("a trace has no steps of the profiler (ProfilerStep#), which --fail-on-worse needs")
        if fail_on_worse is not None and not found.steps["total"].has_spread:
            raise NotJudgedError("no rank has several steps (ProfilerStep#): --fail-on-worse needs how steps vary")
    if fail_on_worse is not None and found.is_worse(fail_on_worse):
        raise click.ClickException(f"{found.headline}; --fail-on-worse allows {float(100 * fail_on_worse):g} %")
