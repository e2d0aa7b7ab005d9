"""A recorded trace again and again, one after the other, as one larger trace of the same program."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Arguments by which events refer to one another, and of which argument each has the numbers; those of a copy are
#: higher than those of the one before it.
NUMBERS = {
    "correlation": "correlation",
    "wait_on_cuda_event_record_corr_id": "correlation",
    "External id": "External id",
    "Ev Idx": "Ev Idx",
    "Sequence number": "Sequence number",
}
#: Microseconds between two copies.
PAUSE = 100


def read(path: Path) -> dict[str, Any]:
    """What is in a trace's file."""
    data = path.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return found


def timed(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Its events with a duration, but for the one that spans the recording."""
    return [event for event in trace["traceEvents"] if event.get("ph") == "X" and event.get("cat") != "Trace"]


def write_copies(trace: dict[str, Any], events: int, path: Path) -> int:
    """Write so many events with a duration, or a few more, to a file; how many they are."""
    once = timed(trace)
    copies = -(-events // len(once))
    with gzip.open(path, "wt", compresslevel=1) as file:
        about = {name: value for name, value in trace.items() if name != "traceEvents"}
        file.write(json.dumps(about)[:-1] + (", " if about else "") + '"traceEvents": [\n')
        named = [event for event in trace["traceEvents"] if event.get("ph") == "M"]
        file.write(",\n".join(map(json.dumps, named)))
        for number, copy in enumerate(_copies(once, copies)):
            file.write(",\n" if named or number else "")
            file.write(",\n".join(map(json.dumps, copy)))
        file.write("\n]}\n")
    return copies * len(once)


def _copies(once: list[dict[str, Any]], copies: int) -> Iterator[list[dict[str, Any]]]:
    first, last = min(e["ts"] for e in once), max(e["ts"] + e["dur"] for e in once)
    length = int(last - first) + PAUSE
    above = {name: 1 + max(_values(once, numbers), default=0) for name, numbers in NUMBERS.items()}
    steps = len({event["name"] for event in once if str(event["name"]).startswith("ProfilerStep#")})
    for number in range(copies):
        yield [_copied(event, number, length, above, steps) for event in once]


def _values(once: list[dict[str, Any]], name: str) -> Iterator[int]:
    for event in once:
        value = event.get("args", {}).get(name)
        if isinstance(value, int):
            yield value


def _copied(event: dict[str, Any], number: int, length: int, above: dict[str, int], steps: int) -> dict[str, Any]:
    """An event of a later copy; what has no number in the first one (0 or less) has none here."""
    args = dict(event.get("args", {}))
    for name, more in above.items():
        if isinstance(args.get(name), int) and args[name] > 0:
            args[name] += number * more
    name = str(event["name"])
    before, step, after = name.partition("ProfilerStep#")
    if step and not before and after.isdigit():
        name = f"{step}{int(after) + number * steps}"
    return event | {"ts": event["ts"] + number * length, "name": name, "args": args}
