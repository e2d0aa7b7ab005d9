"""Cuts a piece out of a Kineto trace: what CPU threads did in a window, and the GPU work that its calls asked for.

python cut.py FROM.json.gz TO.json.gz START_MS STOP_MS    (after the first event with a duration)
"""

import gzip
import json
import sys

ON_GPU = {"kernel", "memcpy", "memset", "gpu_memcpy", "gpu_memset"}


def cut(trace, start_ms, stop_ms):
    """The trace with fewer events, in their order; arrows and spans of the profiler are left out."""
    events = trace["traceEvents"]
    timed = [event for event in events if event["ph"] == "X"]
    first = min(event["ts"] for event in timed)
    kept, asked = set(), set()
    for event in timed:
        on_gpu = event["cat"].lower() in ON_GPU or event["cat"] == "gpu_user_annotation"
        if not on_gpu and event["cat"] != "Trace" and start_ms <= (event["ts"] - first) / 1000 < stop_ms:
            kept.add(id(event))
            asked.add(event.get("args", {}).get("correlation"))
    asked.discard(None)
    kept |= {id(event) for event in timed if event["cat"].lower() in ON_GPU and event["args"]["correlation"] in asked}
    kept |= {id(event) for event in events if event["ph"] == "M"}
    return {**trace, "traceEvents": [event for event in events if id(event) in kept]}


if __name__ == "__main__":
    source, target, *window = sys.argv[1:]
    with gzip.open(source) as file:
        piece = cut(json.load(file), *map(float, window))
    with gzip.GzipFile(target, "wb", mtime=0) as file:
        file.write(json.dumps(piece, indent=1).encode())
    print(len(piece["traceEvents"]), "events")
