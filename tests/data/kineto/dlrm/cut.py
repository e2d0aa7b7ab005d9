"""Cuts the traces of the eight ranks down to what the tests need: ``python cut.py FOLDER`` of the original files.

Left out are operators within other operators, arrows, all arguments but those that connect kernels with their calls,
and of long names what is beyond the first 60 characters. No event that is kept is changed otherwise.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

_ARGUMENTS = ("correlation", "device", "stream")
_MAX_NAME = 60


def cut(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events that are kept, in order of time."""
    kept, until = [], dict[tuple[int, int], float]()
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        if event["cat"] == "cpu_op":
            thread = event["pid"], event["tid"]
            if event["ts"] < until.get(thread, 0):
                continue
            until[thread] = event["ts"] + event["dur"]
        arguments = {name: event["args"][name] for name in _ARGUMENTS if name in event.get("args", {})}
        plain = {name: event[name] for name in ("ph", "cat", "name", "pid", "tid", "ts", "dur")}
        plain["name"] = plain["name"][:_MAX_NAME]
        kept.append({**plain, "args": arguments} if arguments else plain)
    return kept


def main(folder: Path) -> None:
    """Write the ranks beside this file."""
    for path in sorted(folder.glob("*.pt.trace.json")):
        whole = json.loads(path.read_text())
        events = [event for event in whole["traceEvents"] if event.get("ph") == "X" and event.get("cat") != "Trace"]
        info = whole["distributedInfo"]
        kept = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": cut(events)}
        packed = gzip.compress(json.dumps(kept, separators=(",", ":")).encode(), 9, mtime=0)
        (Path(__file__).parent / f"rank{info['rank']}.json.gz").write_bytes(packed)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
