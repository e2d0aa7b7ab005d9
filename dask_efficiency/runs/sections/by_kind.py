"""Time by kind, for a reader: colours, meanings, the strip along a window, and a table of seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise

import numpy as np

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.tables import Int8, Int64
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.show.document import Along, Label, Share, Table
from dask_efficiency.show.drawn_buckets import COLOURS
from dask_efficiency.show.figures import apportion, format_percent, format_seconds, time_scale

#: A hue for each part of the cluster (tasks and disk as the buckets have them, GPUs blue, transfers purple, the
#: scheduler indigo, the worker's loop brown, the client teal), and within it a lightness for each kind. Those of the
#: GPU were found by a search as in :mod:`dask_efficiency.show.drawn_buckets`.
KIND_COLOURS: Mapping[Kind, str] = {
    Kind.COMPUTE_CPU: COLOURS[Bucket.THREAD_CPU],
    Kind.COMPUTE_NONCPU: COLOURS[Bucket.THREAD_NONCPU],
    Kind.GPU_COMPUTE: COLOURS[Bucket.GPU],
    Kind.GPU_COMMUNICATION: "#1b5acd",
    Kind.KERNEL_LAUNCH: "#a8ebfa",
    Kind.KERNEL_GAP: "#192d51",
    Kind.GPU_SYNC: "#5091a0",
    Kind.DATA_LOADING: "#b5c334",
    Kind.TRANSFER: COLOURS[Bucket.WAITING_ON_DATA],
    Kind.TRANSFER_QUEUE: "#c79ade",
    Kind.SPILL: COLOURS[Bucket.SPILL],
    Kind.UNSPILL: "#ff9d7a",
    Kind.GRAPH_UPDATE: "#26346e",
    Kind.SCHEDULER_TRANSITION: "#3d51a3",
    Kind.SCHEDULER_QUEUE: "#6478c4",
    Kind.SCHEDULER_TO_WORKER: "#93a2da",
    Kind.REPORT: "#bcc6ea",
    Kind.READY_WAIT: COLOURS[Bucket.PAUSED],
    Kind.EXECUTOR_HANDOFF: "#d3a25f",
    Kind.WORKER_LOOP: "#a8731d",
    Kind.CLIENT_SUBMIT: "#2c7f7a",
    Kind.RESULT_GATHER: "#7fbfb9",
    Kind.NO_WORKERS: "#5b5f66",
    Kind.LOST_WORKER: COLOURS[Bucket.LOST_WORKER],
    Kind.UNATTRIBUTED: COLOURS[Bucket.UNMEASURED],
}

#: Meaning of each kind, for a reader.
MEANINGS: Mapping[Kind, str] = {kind: kind.meaning for kind in Kind}
#: Meanings in a PyTorch program without Dask.
TORCH_MEANINGS: Mapping[Kind, str] = {
    **MEANINGS,
    Kind.COMPUTE_CPU: "a thread of the program runs operators or Python, and nothing on the GPU is waited for",
    Kind.COMPUTE_NONCPU: "a call takes memory or gives it back, and its thread waits",
    Kind.GPU_COMPUTE: "a kernel or a copy runs on the GPU",
    Kind.GPU_COMMUNICATION: "ranks exchange data",
    Kind.GPU_SYNC: "a call waits for the GPU, and no work of the GPU explains it",
    Kind.DATA_LOADING: "the program waits for its next batch of data",
    Kind.UNATTRIBUTED: "before the first rank on the path began, or nothing recorded explains it",
}

#: Meanings in a PyTorch program without work on a GPU.
TORCH_CPU_MEANINGS = {**TORCH_MEANINGS, Kind.COMPUTE_CPU: "a thread of the program runs operators or Python"}

#: Rows of a table by name; the rest is one row.
TOP_NAMES = 8
#: Steps of the strip along the run, each drawn as the kind that fills most of it: about two pixels a step on a page.
STEPS = 400


def kind_label(name: str, meanings: Mapping[Kind, str] = MEANINGS) -> Label:
    """Make a label of a kind's name, colour and meaning; of any other text, the text alone."""
    return Label(name, KIND_COLOURS[Kind(name)], meanings[Kind(name)]) if name in set(Kind) else Label(name)


def kind_labels(meanings: Mapping[Kind, str] = MEANINGS) -> list[Label]:
    """Make the labels of all kinds, by position."""
    return [kind_label(kind, meanings) for kind in KINDS]


def along(
    kinds: Int8, starts: Int64, stops: Int64, window: tuple[int, int], labels: Sequence[Label], steps: int = STEPS
) -> Along:
    """Draw a window as a strip of steps, each the kind that fills most of it; equal neighbours are one."""
    start, length = window[0], window[1] - window[0]
    filled = np.zeros((steps, len(labels)))
    for kind, since, until in zip(kinds.tolist(), (starts - start).tolist(), (stops - start).tolist(), strict=True):
        first, last = since * steps / length, until * steps / length
        for step in range(int(first), min(int(np.ceil(last)), steps)):
            filled[step, kind] += min(last, step + 1) - max(first, step)
    most = filled.argmax(axis=1)
    edges = [0, *(np.flatnonzero(np.diff(most)) + 1).tolist(), steps]
    pieces = ((labels[most[first]], first, last) for first, last in pairwise(edges))
    return Along(tuple(pieces), steps, format_seconds(length / 1e9))


def seconds_table(name: str, seconds: Mapping[str, float], labels: Mapping[str, Label]) -> Table:
    """Tabulate seconds by name, with a bar for each; labels replace names."""
    largest = max(seconds.values(), default=0.0)
    scale = time_scale(largest)
    tenths = apportion([round(value * 1e9) for value in seconds.values()], 1000)
    rows = tuple(
        (labels.get(key, key), scale.figure(value), format_percent(share))
        for (key, value), share in zip(seconds.items(), tenths, strict=True)
    )
    bars = tuple(Share(value / largest if largest else 0.0) for value in seconds.values())
    return Table((name, f"time, {scale.unit}", "%"), rows, drawings=bars)


def largest_first(seconds: Mapping[str, float]) -> dict[str, float]:
    """Sort seconds by name, the largest first."""
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def top(seconds: Mapping[str, float], number: int) -> dict[str, float]:
    """Keep the first seconds by name, and sum up the rest."""
    first = dict(islice(seconds.items(), number))
    rest = [value for name, value in seconds.items() if name not in first]
    return first | ({f"{len(rest)} more": sum(rest)} if rest else {})
