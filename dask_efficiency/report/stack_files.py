"""Sampled stacks in the file formats of speedscope and of Brendan Gregg's flamegraph.pl."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

from dask_efficiency.accounts.lines import Frame, place_of
from dask_efficiency.files.storage import writing
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stacks import NO_PREFIX, known_stacks, reason
from dask_efficiency.report.values import ProfileRow
from dask_efficiency.show.figures import harmless


def collapsed(report: EfficiencyReport) -> str:
    r"""Sampled stacks as text, in the folded format.

    Returns
    -------
    str
        One line per stack, outermost frame first, with a semicolon between frames and integer nanoseconds at the end.
        The first frame is the bucket with its cause, the second the prefix. Characters that would end a frame or a line
        are escaped (``\x3b``, ``\n``).

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
    """Names of a stack, outermost first: bucket with cause, prefix, and frames."""
    frames = (f"{each.function} ({place_of(each)})" for each in row.stack)
    return [reason(row.bucket, row.cause), row.prefix or NO_PREFIX, *frames]


def _escaped(name: str) -> str:
    return harmless(name).replace(";", r"\x3b")


def save_collapsed(report: EfficiencyReport, path: str | os.PathLike[str], **storage_options: Any) -> None:
    """Write the text to a local path or any fsspec URL."""
    text = collapsed(report)
    with writing(path, compression="infer", **storage_options) as file:
        file.write(text.encode("utf-8"))


# -- speedscope ------------------------------------------------------------------------------------


SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(report: EfficiencyReport) -> dict[str, Any]:
    """Sampled stacks as plain data, ready for JSON.

    Returns
    -------
    dict
        Speedscope's schema: sampled profiles in seconds, the longest first. The outermost frame is the prefix; the
        weights of a profile add up to its cause's thread-seconds, including time without a sample.

    Raises
    ------
    NoStacksError
        If no stack was sampled.

    References
    ----------
    J. Wong, speedscope, file format schema.
    """
    frames: dict[Frame, int] = {}
    samples: dict[str, list[list[int]]] = {}
    nanoseconds: dict[str, list[int]] = {}
    for row in known_stacks(report):
        name = reason(row.bucket, row.cause)
        stack = (Frame(row.prefix or NO_PREFIX, "", 0), *row.stack)
        samples.setdefault(name, []).append([frames.setdefault(frame, len(frames)) for frame in stack])
        nanoseconds.setdefault(name, []).append(row.ns)
    longest_first = sorted(samples, key=lambda name: -sum(nanoseconds[name]))
    version = report.environment.get("dask-efficiency", "")
    return {
        "$schema": SCHEMA,
        "name": harmless(report.name),
        "exporter": f"dask-efficiency {harmless(version)}".rstrip(),
        "activeProfileIndex": 0,
        "shared": {"frames": list(map(_speedscope_frame, frames))},
        "profiles": [
            {
                "type": "sampled",
                "name": harmless(name),
                "unit": "seconds",
                "startValue": 0,
                "endValue": sum(nanoseconds[name]) / 1e9,
                "samples": samples[name],
                "weights": [ns / 1e9 for ns in nanoseconds[name]],
            }
            for name in longest_first
        ],
    }


def _speedscope_frame(frame: Frame) -> dict[str, Any]:
    if not frame.file:
        return {"name": harmless(frame.function)}
    return {"name": harmless(frame.function), "file": harmless(frame.file), "line": frame.line}


def save_speedscope(report: EfficiencyReport, path: str | os.PathLike[str], **storage_options: Any) -> None:
    """Write the data as JSON to a local path or any fsspec URL."""
    text = json.dumps(speedscope(report), allow_nan=False, separators=(",", ":")) + "\n"
    with writing(path, compression="infer", **storage_options) as file:
        file.write(text.encode("ascii"))
