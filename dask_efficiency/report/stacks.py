"""Stacks: the sampled profile, scaled to exact times, and its files for speedscope and flamegraph.pl."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from dask_efficiency.accounts.buckets import CAUSES, GOOD, HELD, UNKNOWN, Bucket, cause_name, causes_of, fit_causes
from dask_efficiency.accounts.lines import Frame, Stack, place_of
from dask_efficiency.files.storage import writing
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import ProfileRow
from dask_efficiency.show.figures import apportion, harmless

#: Stands for an unknown prefix.
NO_PREFIX = "(no prefix)"
#: Bucket, cause and prefix; cause and prefix may be empty.
Key = tuple[str, str, str]

#: Buckets known by prefix: held time, and most of that on lost workers. Overhead is known by prefix, too, but not by
#: prefix and cause.
BY_PREFIX = (*(bucket for bucket in HELD if bucket not in (Bucket.OVERHEAD, Bucket.RUNNING)), Bucket.LOST_WORKER)


class NoStacksError(ValueError):
    """The report has no sampled stacks."""


def cause_rows(report: EfficiencyReport) -> dict[tuple[str, str], int]:
    """Nanoseconds of the cluster by bucket and cause; the cause is empty for buckets without causes."""
    whole, causes = report.breakdown, _by_cause(report)
    return {
        (str(bucket), cause): ns
        for bucket in map(Bucket, whole)
        for cause, ns in _causes(causes, bucket, whole.ns(bucket)).items()
    }


def exact_times(report: EfficiencyReport) -> dict[Key, int]:
    """Nanoseconds by bucket, cause and prefix of all time finalized while there was work.

    Rows of a bucket add up to it. The prefix is empty if unknown or if the time belongs to no task; for
    ``idle/parallelism`` it is that of the tasks that all waited for. Where causes are known and prefixes are, but not
    together, as in retrospect, the causes stand.
    """
    whole, causes = report.breakdown, _by_cause(report)
    found: Counter[Key] = Counter()
    for bucket in map(Bucket, whole):
        if bucket in (Bucket.NO_WORK, Bucket.RUNNING):
            continue
        by_cause: Counter[str] = Counter()
        for prefix, row in report.by_prefix.items() if _known_by_prefix(report, bucket, causes) else ():
            own = _causes(report.causes_by_prefix.get(prefix, {}), bucket, row.ns(bucket))
            by_cause.update(own)
            found.update({(str(bucket), cause, prefix): ns for cause, ns in own.items()})
        rest = max(0, whole.ns(bucket) - by_cause.total())
        names = {cause: cause_name(bucket, cause) for cause in CAUSES.get(bucket, ())}
        left = {name: causes[name] - by_cause[cause] for cause, name in names.items()}
        for cause, ns in _causes(left, bucket, rest).items():
            waited_for = report.waited_for if cause == "parallelism" else {}
            found.update({(str(bucket), cause, prefix): part for prefix, part in _shared(ns, waited_for).items()})
    return dict(found)


def _known_by_prefix(report: EfficiencyReport, bucket: Bucket, causes: Mapping[str, int]) -> bool:
    """Check if a bucket is known by prefix, and its causes by prefix if they are known at all."""
    if bucket not in BY_PREFIX or bucket not in CAUSES:
        return bucket in BY_PREFIX
    known = [name for cause in CAUSES[bucket] if cause != UNKNOWN and causes.get(name := cause_name(bucket, cause))]
    return not known or any(row.get(name) for row in report.causes_by_prefix.values() for name in known)


def _by_cause(report: EfficiencyReport) -> Counter[str]:
    causes: Counter[str] = Counter()
    for row in report.causes_by_worker.values():
        causes.update(row)
    return causes


def _causes(row: Mapping[str, int], bucket: Bucket, ns: int) -> dict[str, int]:
    """Nanoseconds of a bucket by bare cause; under an empty name if it has no causes."""
    if bucket not in CAUSES:
        return {"": ns} if ns else {}
    return {name.partition("/")[2]: part for name, part in fit_causes(causes_of(row, bucket), bucket, ns).items()}


def _shared(ns: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Time by prefix in proportion to weights; under an empty prefix without weights."""
    if not any(weights.values()):
        return {"": ns}
    return {prefix: part for prefix, part in zip(weights, apportion([*weights.values()], ns), strict=True) if part}


def exact_stacks(report: EfficiencyReport) -> tuple[ProfileRow, ...]:
    """Exact times by stack, in proportion to the profile; without a sample, with an empty stack.

    Rows of a bucket, cause and prefix add up to :func:`exact_times`.
    """
    sampled: defaultdict[Key, Counter[Stack]] = defaultdict(Counter)
    for row in report.profile:
        if row.ns > 0:  # ways of computing are no causes
            sampled[row.bucket, "" if row.bucket in GOOD else row.cause, row.prefix][row.stack] += row.ns
    found: list[ProfileRow] = []
    for key, ns in exact_times(report).items():
        rows = sampled.get(key) or {(): 1}
        parts = apportion([*rows.values()], ns)
        found += (ProfileRow(*key, stack, part) for stack, part in zip(rows, parts, strict=True) if part)
    return tuple(found)


def sampled_stacks(report: EfficiencyReport) -> tuple[ProfileRow, ...]:
    """Rows of :func:`exact_stacks` in buckets with any known stack."""
    rows = exact_stacks(report)
    known = {row.bucket for row in rows if row.stack}
    return tuple(row for row in rows if row.bucket in known)


def known_stacks(report: EfficiencyReport) -> tuple[ProfileRow, ...]:
    """Rows of :func:`sampled_stacks`, of which there must be one."""
    if rows := sampled_stacks(report):
        return rows
    raise NoStacksError(f"the report {report.name!r:.80} has no stacks; expected one of tasks that were sampled")


def collapsed(report: EfficiencyReport) -> str:
    r"""Sampled stacks with integer nanoseconds, a line each, in the folded format of B. Gregg's stackcollapse.

    The outermost frame is the bucket with its cause, the next the prefix; others are written as by py-spy:
    ``function (file:line)``. Characters that would end a frame or a line are escaped (``\x3b``, ``\n``).
    """
    lines: Counter[str] = Counter()
    for row in known_stacks(report):
        frames = (f"{each.function} ({place_of(each)})" for each in row.stack)
        names = (cause_name(row.bucket, row.cause), row.prefix or NO_PREFIX, *frames)
        lines[";".join(harmless(name).replace(";", r"\x3b") for name in names)] += row.ns
    return "".join(f"{line} {ns}\n" for line, ns in lines.items())


def save_collapsed(report: EfficiencyReport, path: str | os.PathLike[str], **storage_options: Any) -> None:
    """Write the text to a local path or any fsspec URL."""
    _write(collapsed(report), path, **storage_options)


def _write(text: str, path: str | os.PathLike[str], **storage_options: Any) -> None:
    with writing(path, compression="infer", **storage_options) as file:
        file.write(text.encode("utf-8"))


SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(report: EfficiencyReport) -> dict[str, Any]:
    """Sampled stacks as plain data in the schema of J. Wong's speedscope, one profile per cause, the longest first.

    The outermost frame is the prefix; the weights of a profile add up to its cause's thread-seconds, including time
    without a sample.
    """
    frames: dict[Frame, int] = {}
    profiles: dict[str, list[tuple[list[int], int]]] = {}
    for row in known_stacks(report):
        stack = (Frame(row.prefix or NO_PREFIX, "", 0), *row.stack)
        sample = [frames.setdefault(frame, len(frames)) for frame in stack]
        profiles.setdefault(cause_name(row.bucket, row.cause), []).append((sample, row.ns))
    whole = {name: sum(ns for _, ns in rows) for name, rows in profiles.items()}
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
                "endValue": whole[name] / 1e9,
                "samples": [sample for sample, _ in profiles[name]],
                "weights": [ns / 1e9 for _, ns in profiles[name]],
            }
            for name in sorted(profiles, key=lambda name: -whole[name])
        ],
    }


def _speedscope_frame(frame: Frame) -> dict[str, Any]:
    place = {"file": harmless(frame.file), "line": frame.line} if frame.file else {}
    return {"name": harmless(frame.function), **place}


def save_speedscope(report: EfficiencyReport, path: str | os.PathLike[str], **storage_options: Any) -> None:
    """Write the data as JSON to a local path or any fsspec URL."""
    _write(json.dumps(speedscope(report), allow_nan=False, separators=(",", ":")) + "\n", path, **storage_options)
