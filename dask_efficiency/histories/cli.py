"""Command `dask-efficiency history`: runs over weeks, and which got worse."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import click

from dask_efficiency.cli.options import html_option, json_option, label_option, markdown_option, percent
from dask_efficiency.cli.output import NotJudgedError, one_line_errors, say, tell

if TYPE_CHECKING:
    from dask_efficiency.histories.history import RunHistory


@click.command("history")
@click.argument("where", metavar="FOLDER")
@click.option("--name", default="", metavar="NAME", help="Only runs of this name, such as job.py.")
@label_option("Only runs with this label; repeat for several.")
@click.option(
    "--fail-on-worse",
    callback=percent,
    metavar="PERCENT",
    help="End with exit code 1 if the latest run of a name takes more time, or memory of a worker, than those before "
    "it: by more than this, such as 10%, and by more than they vary. Also if it ended by an error.",
)
@html_option
@json_option
@markdown_option
def command(
    where: str,
    name: str,
    labels: dict[str, str],
    fail_on_worse: Fraction | None,
    html: str | None,
    as_json: bool,
    as_markdown: bool,
) -> None:
    """Show runs over weeks, and which got worse.

    Since which run they are slower or hungrier is said with what came with it. FOLDER has saved reports, as of
    `run --save-to`, also in folders in it; or it is a pattern in quotes ('nightly/*.json'). Both may be URLs. Only the
    heads of the reports are read; an index in the folder saves that the next time. Runs of one name are a series;
    --label keeps those of a branch apart.

    \b
    Exit codes:
      0  shown; the latest runs are like those before them, or have fewer than five before them
      1  the latest run of a name is worse than --fail-on-worse allows, or ended by an error
      2  not judged: a wrong option, or no report in the folder
    """  # noqa: D301 click wants the character
    from dask_efficiency.histories.history import history

    with one_line_errors(kind=NotJudgedError):
        found = history(where, name=name, labels=labels)
        if html is not None:
            found.to_html(html)
        say(found, as_json=as_json, as_markdown=as_markdown, written=html is not None)
    if fail_on_worse is not None:
        _check(found, fail_on_worse)


def _check(found: RunHistory, than: Fraction) -> None:
    """Exit with 1 if the latest run of a name is worse than is allowed; say what could not be judged."""
    from dask_efficiency.histories.history import FEWEST_BEFORE
    from dask_efficiency.histories.sections import ended_clause, worse_clause

    worse = found.worse(than)
    ended = [series for series in found.series if series.ended_by]
    if unjudged := sum(not series.is_judged for series in found.series) - len(ended):
        why = f"fewer than {FEWEST_BEFORE} whole runs before the latest, or nothing ran in that"
        tell(f"{unjudged} of {len(found.series)} names are not judged: {why}", err=True)
    if worse:
        more = f", and {len(worse) - 1} more" if worse[1:] else ""
        allowed = f"--fail-on-worse allows {float(100 * than):g} %"
        raise click.ClickException(f"{worse_clause(worse[0])}{more}; {allowed}")
    if ended:
        more = f", and those of {len(ended) - 1} more names" if ended[1:] else ""
        raise click.ClickException(f"{ended_clause(ended[0])}{more}; not judged")
