"""The sampled stacks in speedscope's file format, one profile for each bucket and cause."""

from __future__ import annotations

import json
import os
from typing import Any

from dask_efficiency.accounts.profile import Frame
from dask_efficiency.files.storage import writing
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stacks import NO_PREFIX, known_stacks, reason
from dask_efficiency.show.figures import harmless

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(report: EfficiencyReport) -> dict[str, Any]:
    """The sampled stacks as plain data, ready for JSON.

    Returns
    -------
    dict
        Of speedscope's schema: sampled profiles in seconds, the longest first. The outermost frame is the prefix; the
        weights of a profile add up to its cause's thread-seconds, with what no sample was taken of.

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
        "shared": {"frames": list(map(_frame, frames))},
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


def _frame(frame: Frame) -> dict[str, Any]:
    if not frame.file:
        return {"name": harmless(frame.function)}
    return {"name": harmless(frame.function), "file": harmless(frame.file), "line": frame.line}


def save(report: EfficiencyReport, path: str | os.PathLike[str], **storage_options: Any) -> None:
    """Write the data as JSON to a local path or any fsspec URL."""
    text = json.dumps(speedscope(report), allow_nan=False, separators=(",", ":")) + "\n"
    with writing(path, compression="infer", **storage_options) as file:
        file.write(text.encode("ascii"))
