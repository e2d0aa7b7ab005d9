"""`dask-efficiency critical-path`: why a run took so long."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import click

from dask_efficiency.cli import options
from dask_efficiency.cli.output import one_line_errors, say
from dask_efficiency.runs.cli.recorded import WITHOUT, recorded
from dask_efficiency.runs.trace.errors import UnknownNameError


@click.command("critical-path")
@click.option("--target", metavar="KEY", help="Only what the end of this task waited for.")
@click.option("--span", metavar="NAME", help="Only what the end of this span's last task waited for.")
@options.what_if_option
@options.without_option(*WITHOUT)
@click.option("--repair", multiple=True, metavar="WORKER", help="Make this worker as fast as the others.")
@click.option("--speedups", is_flag=True, help="Say where 10 % less time would help most.")
@click.option("--before", metavar="FILE", help="Show what changed on the path since this earlier run.")
@options.chrome_options(only_critical=False)
@options.html_option
@options.json_option
@options.scheduler_options
def command(
    source: str,
    target: str | None,
    span: str | None,
    speed_up: dict[str, float],
    without: tuple[str, ...],
    repair: tuple[str, ...],
    speedups: bool,
    before: str | None,
    chrome: str | None,
    only_critical: bool,
    html: str | None,
    as_json: bool,
    connection: options.Connection,
) -> None:
    """Show what each second of a run was spent on.

    SOURCE is the file or URL of a recorded run, which `report.trace.save("run.trace")` wrote, or the address
    (tcp://host:8786, tls://host:8786 or host:8786) of a scheduler that records: `EfficiencyPlugin(trace=True)`.

    --what-if, --without and --repair may be given together and more than once. The run is then replayed with all of
    these changes, and what is written is the changed path; the answer is an estimate.
    """
    changes: dict[str, Any] = {"speed_up": speed_up, "without": without, "repair": repair}
    if speedups + (before is not None) + any(changes.values()) > 1:
        raise click.UsageError("expected one of --speedups, --before, and --what-if, --without or --repair")
    with one_line_errors(UnknownNameError):
        from dask_efficiency.runs.path.compare import compare_paths
        from dask_efficiency.runs.path.path import critical_path

        path = critical_path(recorded(source, connection), target=target, span=span)
        changed = path.what_if(**changes) if any(changes.values()) else None
        earlier = None if before is None else critical_path(recorded(before, connection), target=target, span=span)
        if chrome is not None:
            (changed or path).to_chrome(chrome, only_critical=only_critical)
        if html is not None:
            (changed or path).to_html(html)
        from dask_efficiency.runs.sections import path as sections

        if as_json:
            data = sections.to_dict(path)
            if changed is not None:
                data["what_if"] = sections.to_dict(changed) | {"changes": changes}
            if earlier is not None:
                data["before"] = sections.to_dict(earlier)
            if speedups:
                data["speedups"] = sections.improvement_rows(path)
            click.echo(json.dumps(data, indent=1))
            return
        from dask_efficiency.show.terminal import show

        if earlier is not None:
            show(compare_paths(earlier, path).document)
        elif speedups:
            show(sections.improvements_document(path))
        elif changed is not None:
            show(sections.what_if_document(path, changed, _in_words(**changes)))
        else:
            say(path, as_json=False, written=chrome is not None or html is not None)


def _in_words(speed_up: Mapping[str, float], without: Iterable[str], repair: Iterable[str]) -> str:
    parts = [f"{prefix!r} {factor:g} times as fast" for prefix, factor in speed_up.items()]
    parts += [f"no {name}" for name in without]
    parts += [f"worker {name!r} as fast as the others" for name in repair]
    return f"With {' and '.join(parts)}"
