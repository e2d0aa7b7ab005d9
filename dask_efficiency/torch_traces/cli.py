"""`dask-efficiency torch-critical-path`: why a PyTorch program took so long, from what its profiler wrote."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click

from dask_efficiency.cli.errors import one_line_errors, unknown_names
from dask_efficiency.cli.options import numbers_by_name
from dask_efficiency.cli.output import say
from dask_efficiency.cli.source import Kind, is_address, is_file, look_at

if TYPE_CHECKING:
    from dask_efficiency.torch_traces.path.path import TorchCriticalPath

#: As :data:`dask_efficiency.torch_traces.path.speeds.WITHOUT` has them; a test compares the two.
WITHOUT = ("kernel-launch", "kernel-gap", "gpu-communication", "gpu-sync", "data-loading")


def _instance(context: click.Context, parameter: click.Parameter, value: str | None) -> int | tuple[int, int] | None:
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", value)
    if not found:
        raise click.BadParameter(f"{value!r} is not a number such as 1, or the first and the last such as 1:3")
    return int(found[1]) if found[2] is None else (int(found[1]), int(found[2]))


@click.command("torch-critical-path")
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
    help="The execution trace (PyTorch's or Chakra's) recorded beside the only file: which data operators need.",
)
@click.option(
    "--what-if",
    "speed_up",
    multiple=True,
    callback=numbers_by_name,
    metavar="NAME=FACTOR",
    help="Make kernels or operators with this in their names so many times as fast, such as 'gemm=2.0'.",
)
@click.option("--without", multiple=True, type=click.Choice(WITHOUT), help="Let this take no time.")
@click.option("--chrome", metavar="FILE", help="Write the path, on its trace, to this file or URL for ui.perfetto.dev.")
@click.option("--whole", is_flag=True, help="With --chrome: also what is not on the path.")
@click.option("--all-edges", is_flag=True, help="With --chrome: the same, and every arrow of the graph.")
@click.option("--html", metavar="FILE", help="Write the path to this file or URL as a page that works offline.")
@click.option("--save", metavar="FILE", help="Write the path to this file or URL; this command reads it.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    files: tuple[str, ...],
    annotation: str,
    instance: int | tuple[int, int] | None,
    rank: int | None,
    data_loading: tuple[str, ...],
    execution_trace: str | None,
    speed_up: dict[str, float],
    without: tuple[str, ...],
    chrome: str | None,
    whole: bool,
    all_edges: bool,
    html: str | None,
    save: str | None,
    as_json: bool,
) -> None:
    """Say why a PyTorch program took so long: what its GPUs and threads had to wait for.

    FILES are traces that `torch.profiler` wrote (Kineto: `prof.export_chrome_trace`, `tensorboard_trace_handler`),
    compressed or not: files, URLs, folders or patterns such as 'traces/*.json.gz', one rank each; or one file that
    --save wrote.

    With --what-if or --without, all weights and instants are worked out anew, and what is written is the changed path;
    the answer is an estimate.
    """
    if (whole or all_edges) and chrome is None:
        raise click.UsageError("--whole and --all-edges need --chrome FILE")
    with one_line_errors(), unknown_names():
        recorded = _found(files, annotation, instance, rank, data_loading, execution_trace)
        changed = recorded.what_if(speed_up=speed_up, without=without) if speed_up or without else None
        path = changed or recorded
        if chrome is not None:
            path.to_chrome(chrome, only_critical=not (whole or all_edges), all_edges=all_edges)
        if html is not None:
            path.to_html(html)
        if save is not None:
            path.save(save)
    if as_json and changed is not None:
        click.echo(json.dumps(recorded.to_dict() | {"what_if": changed.to_dict()}, indent=1))
    elif changed is not None:
        from dask_efficiency.show.terminal.coloured import show
        from dask_efficiency.torch_traces.sections.path import what_if_document

        show(what_if_document(recorded, changed))
    else:
        say(recorded, as_json=as_json, written=any(file is not None for file in (chrome, html, save)))


def _found(
    files: tuple[str, ...],
    annotation: str,
    instance: int | tuple[int, int] | None,
    rank: int | None,
    data_loading: tuple[str, ...],
    execution_trace: str | None,
) -> TorchCriticalPath:
    from dask_efficiency.torch_traces.kineto.load import load_kineto
    from dask_efficiency.torch_traces.path.files import load_path
    from dask_efficiency.torch_traces.path.path import torch_critical_path

    saved = _look(files)
    if saved is not None:
        if annotation or instance is not None or rank is not None or data_loading or execution_trace:
            raise click.UsageError(f"{saved} is a saved path, which has its annotation, instance and rank already")
        return load_path(saved)
    trace = load_kineto(files[0] if len(files) == 1 else list(files), execution_trace=execution_trace)
    return torch_critical_path(trace, annotation=annotation, instance=instance, rank=rank, data_loading=data_loading)


def _look(files: tuple[str, ...]) -> str | None:
    """The only file, if it is a saved path; a file of another kind is refused with what can be done with it."""
    if len(files) > 1 or not (is_address(files[0]) or is_file(files[0])):
        return None
    given = look_at(files[0])
    if given.kind is Kind.TORCH_PATH:
        return given.where
    if given.kind not in (Kind.KINETO, Kind.CHROME, Kind.OTHER):
        raise given.refusal("traces that torch.profiler wrote, or a path that --save wrote")
    return None
