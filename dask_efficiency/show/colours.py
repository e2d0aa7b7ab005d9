"""One colour and one letter for each bucket, the same wherever the package draws."""

from __future__ import annotations

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.causes import UNKNOWN

#: Good time is green and blue, losses are warm, nobody's time is grey. Found by a search over
#: these hues for the largest distance in Oklab between any two, as seen with normal sight and with
#: protanopia and deuteranopia as simulated by Machado, Oliveira & Fernandes, IEEE TVCG 2009.
COLOURS: dict[Bucket, str] = {
    Bucket.THREAD_CPU: "#549857",
    Bucket.GPU: "#1d86ee",
    Bucket.LIBRARY_THREADS: "#0a3cf0",
    Bucket.THREAD_NONCPU: "#f2d70e",
    Bucket.SPILL: "#ff4508",
    Bucket.OVERHEAD: "#fa9c1c",
    Bucket.FAILED: "#822050",
    Bucket.CANCELLED: "#965843",
    Bucket.RECOMPUTED: "#ce47aa",
    Bucket.PAUSED: "#febda0",
    Bucket.RETIRING: "#c5b483",
    Bucket.WAITING_ON_DATA: "#791ba5",
    Bucket.CONSTRAINED: "#675b08",
    Bucket.IDLE: "#9f9f9f",
    Bucket.NO_WORK: "#cbcbcb",
    Bucket.LOST_WORKER: "#78330d",
    Bucket.UNMEASURED: "#6a6d70",
    Bucket.RUNNING: "#84e3ff",
}

#: What a GPU does, by the names of :data:`dask_efficiency.accounts.cluster.presence.GPU_ACTIVITIES`; the copies' by
#: the same search.
GPU_COLOURS: dict[str, str] = {
    "kernels": COLOURS[Bucket.GPU],
    "copies": "#0d5173",
    "idle": COLOURS[Bucket.IDLE],
}

#: Causes within a bucket. A figure of one bucket's causes has no other colours in it, so these may repeat.
CAUSE_COLOURS: dict[Bucket, dict[str, str]] = {
    Bucket.THREAD_NONCPU: {
        "gil": COLOURS[Bucket.THREAD_NONCPU],
        "core": COLOURS[Bucket.OVERHEAD],
        "throttled": COLOURS[Bucket.SPILL],
        "stopped": COLOURS[Bucket.LOST_WORKER],
        "lock": COLOURS[Bucket.RECOMPUTED],
        "sleep": COLOURS[Bucket.RETIRING],
        "file": COLOURS[Bucket.CANCELLED],
        "network": COLOURS[Bucket.WAITING_ON_DATA],
        "child-process": COLOURS[Bucket.PAUSED],
        UNKNOWN: COLOURS[Bucket.IDLE],
    },
    Bucket.OVERHEAD: {
        "hand-over": COLOURS[Bucket.OVERHEAD],
        "event-loop": COLOURS[Bucket.SPILL],
        "rescheduled": COLOURS[Bucket.CANCELLED],
        UNKNOWN: COLOURS[Bucket.IDLE],
    },
    Bucket.IDLE: {
        "scheduler": COLOURS[Bucket.SPILL],
        "round-trips": COLOURS[Bucket.CANCELLED],
        "imbalance": COLOURS[Bucket.OVERHEAD],
        "restricted": COLOURS[Bucket.RECOMPUTED],
        "graph": COLOURS[Bucket.WAITING_ON_DATA],
        "parallelism": COLOURS[Bucket.THREAD_NONCPU],
        UNKNOWN: COLOURS[Bucket.IDLE],
    },
}

#: What stands for "the rest" beside the buckets.
OTHER_COLOUR = "#ccaed2"

#: rich's names of the colour systems in which no two buckets look the same.
DISTINCT_COLOURS = ("256", "truecolor")

#: For a screen without colour, or without any character but ASCII.
LETTERS: dict[Bucket, str] = {
    Bucket.THREAD_CPU: "#",
    Bucket.GPU: "@",
    Bucket.LIBRARY_THREADS: "l",
    Bucket.THREAD_NONCPU: "n",
    Bucket.SPILL: "s",
    Bucket.OVERHEAD: "o",
    Bucket.FAILED: "f",
    Bucket.CANCELLED: "c",
    Bucket.RECOMPUTED: "r",
    Bucket.PAUSED: "p",
    Bucket.RETIRING: "t",
    Bucket.WAITING_ON_DATA: "w",
    Bucket.CONSTRAINED: "k",
    Bucket.IDLE: ".",
    Bucket.NO_WORK: "_",
    Bucket.LOST_WORKER: "x",
    Bucket.UNMEASURED: "?",
    Bucket.RUNNING: "~",
}


def luminance(colour: str) -> float:
    """Relative luminance of a colour ``#rrggbb``, from 0 (black) to 1 (white).

    References
    ----------
    W3C, Web Content Accessibility Guidelines 2.2, "relative luminance".
    """
    red, green, blue = (_linear(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)


def ink(colour: str) -> str:
    """Black or white: the one that reads better on the colour."""
    # at 0.179 both have the same contrast, (L + 0.05) / 0.05 == 1.05 / (L + 0.05)
    return "#000000" if luminance(colour) > 0.179 else "#ffffff"
