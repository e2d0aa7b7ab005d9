"""Collapsed stacks: one line for each, as Brendan Gregg's flamegraph.pl and many other tools read them."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from dask_efficiency.accounts.lines import place_of
from dask_efficiency.files.storage import writing
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.profile import ProfileRow
from dask_efficiency.report.stacks import NO_PREFIX, known_stacks, reason
from dask_efficiency.show.figures import harmless


def collapsed(report: EfficiencyReport) -> str:
    r"""The sampled stacks as text.

    Returns
    -------
    str
        A line for each stack, outermost frame first, with a semicolon between frames and whole nanoseconds behind. The
        first frame is the bucket with its cause, the second the prefix. Characters that would end a frame or a line are
        escaped (``\x3b``, ``\n``).

    Raises
    ------
    NoStacksError
        If no stack was sampled.

    References
    ----------
    B. Gregg, FlameGraph, the folded format of stackcollapse; frames as py-spy writes them: ``function (file:line)``.
    """
    lines: Counter[str] = Counter()
    for row in known_stacks(report):
        lines[";".join(map(_escaped, frames_of(row)))] += row.ns
    return "".join(f"{line} {ns}\n" for line, ns in lines.items())


def frames_of(row: ProfileRow) -> list[str]:
    """Names of what is stacked, outermost first: the bucket with its cause, the prefix, and the frames."""
    frames = (f"{each.function} ({place_of(each)})" for each in row.stack)
    return [reason(row.bucket, row.cause), row.prefix or NO_PREFIX, *frames]


def _escaped(name: str) -> str:
    return harmless(name).replace(";", r"\x3b")


def save(report: EfficiencyReport, path: str | os.PathLike[str], **storage_options: Any) -> None:
    """Write the text to a local path or any fsspec URL."""
    text = collapsed(report)
    with writing(path, compression="infer", **storage_options) as file:
        file.write(text.encode("utf-8"))
