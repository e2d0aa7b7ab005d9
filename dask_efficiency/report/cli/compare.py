"""`dask-efficiency compare`: changes from one report to another."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from dask_efficiency.cli.inputs import InputKind, look_at
from dask_efficiency.cli.options import html_option, json_option
from dask_efficiency.cli.output import NotJudgedError, one_line_errors, say

if TYPE_CHECKING:
    from dask_efficiency.report.compare import Comparison


def _percent(context: click.Context, parameter: click.Parameter, value: str | None) -> Fraction | None:
    if value is None:
        return None
    if not re.fullmatch(r"\d+(\.\d+)? *%", value.strip()):
        raise click.BadParameter(f"{value!r} is not a share such as 5% or 0.5%")
    return Fraction(value.strip().rstrip("% ")) / 100


@click.command("compare")
@click.argument("sides", nargs=-1, metavar="[BEFORE AFTER]")
@click.option("--before", multiple=True, metavar="FILE", help="A run before; repeat for several.")
@click.option("--after", multiple=True, metavar="FILE", help="A run after; repeat for several.")
@click.option(
    "--max-loss",
    callback=_percent,
    metavar="PERCENT",
    help="End with exit code 1 if lost thread-seconds rose by more, such as 5%. Where nothing was lost before, "
    "any loss is more.",
)
@html_option
@json_option
def command(
    sides: tuple[str, ...],
    before: tuple[str, ...],
    after: tuple[str, ...],
    html: str | None,
    as_json: bool,
    max_loss: Fraction | None,
) -> None:
    """Show what changed between two saved reports.

    Losses that grew or shrank are listed with their places. BEFORE and AFTER are files or URLs, or patterns in quotes
    ('main/*.json') for several runs per side, which --before and --after name one by one. Of several runs, medians are
    compared.

    \b
    Exit codes:
      0  compared
      1  lost time rose by more than --max-loss allows
      2  not compared: a wrong option, an unreadable file, or --max-loss and a run
         in which nothing ran
    """  # noqa: D301 click wants the character
    if len(sides) not in (0, 2) or bool(sides) == bool(before or after):
        wanted = "expected BEFORE and AFTER, or --before and --after"
        raise click.UsageError(f"{wanted}; patterns of files need quotes: 'main/*.json'")
    if not sides and not (before and after):
        raise click.UsageError(f"--{'before' if after else 'after'} is missing; expected a run on both sides")
    with one_line_errors(kind=NotJudgedError):
        found = _compared(*((sides[0],), (sides[1],)) if sides else (before, after))
        if html is not None:
            found.to_html(html)
        say(found, as_json=as_json, written=html is not None)
    if max_loss is not None:
        _check_max_loss(found, max_loss)


def _compared(before: Iterable[str], after: Iterable[str]) -> Comparison:
    from dask_efficiency.report.compare import compare

    sides = [[file for side in sides for file in _files(side)] for sides in (before, after)]
    for source in map(look_at, (*sides[0], *sides[1])):
        if source.kind not in (InputKind.REPORT, InputKind.OTHER):
            raise source.refusal("saved reports; `critical-path` compares recorded runs by its --before")
    return compare(*sides)


def _files(pattern: str) -> list[str]:
    """Files that match a pattern; a name without wildcards is itself."""
    if not any(wildcard in pattern for wildcard in "*?[") or os.path.exists(pattern):
        return [pattern]
    if "://" in pattern:
        import fsspec

        file_system, path = fsspec.core.url_to_fs(pattern)
        found = [file_system.unstrip_protocol(name) for name in file_system.glob(path)]
    else:
        found = glob.glob(pattern, recursive=True)
    if not found:
        raise FileNotFoundError(f"no file matches {pattern!r}")
    return sorted(found)


def _check_max_loss(found: Comparison, max_loss: Fraction) -> None:
    """Exit with 1 if more was lost than is allowed, and with 2 if that cannot be judged."""
    for name, run in zip((*found.names_before, *found.names_after), found.runs, strict=True):
        if not run.thread_seconds:
            raise NotJudgedError(f"{name}: nothing ran, so --max-loss cannot tell")
    if found.loses_more(max_loss):
        from dask_efficiency.report.comparison_findings import excess

        raise click.ClickException(f"{excess(found)}; --max-loss allows {float(100 * max_loss):g} %")
