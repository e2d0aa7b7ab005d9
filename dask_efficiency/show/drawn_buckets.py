"""Time by bucket as it is drawn: colours and letters, shares that add up to 100 %, and the wedges of a pie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import GOOD, UNKNOWN, Breakdown, Bucket
from dask_efficiency.show.figures import apportion, format_percent

#: Colour of each bucket, and its letter for screens without colour or with ASCII only. Good time is green and blue,
#: losses are warm, nobody's time is grey. Found by a search over these hues for the largest distance in Oklab between
#: any two, as seen with normal sight and with protanopia and deuteranopia as simulated by Machado, Oliveira &
#: Fernandes, IEEE TVCG 2009.
_DRAWN: dict[Bucket, tuple[str, str]] = {
    Bucket.THREAD_CPU: ("#549857", "#"),
    Bucket.GPU: ("#1d86ee", "@"),
    Bucket.LIBRARY_THREADS: ("#0a3cf0", "l"),
    Bucket.THREAD_NONCPU: ("#f2d70e", "n"),
    Bucket.SPILL: ("#ff4508", "s"),
    Bucket.OVERHEAD: ("#fa9c1c", "o"),
    Bucket.FAILED: ("#822050", "f"),
    Bucket.CANCELLED: ("#965843", "c"),
    Bucket.RECOMPUTED: ("#ce47aa", "r"),
    Bucket.PAUSED: ("#febda0", "p"),
    Bucket.RETIRING: ("#c5b483", "t"),
    Bucket.WAITING_ON_DATA: ("#791ba5", "w"),
    Bucket.CONSTRAINED: ("#675b08", "k"),
    Bucket.IDLE: ("#9f9f9f", "."),
    Bucket.NO_WORK: ("#cbcbcb", "_"),
    Bucket.LOST_WORKER: ("#78330d", "x"),
    Bucket.UNMEASURED: ("#6a6d70", "?"),
    Bucket.RUNNING: ("#84e3ff", "~"),
}
#: Share of a pie below which a wedge has no room for its per cent; the legend has it too. By eye.
LABELLED_SHARE = 0.08
COLOURS = {bucket: colour for bucket, (colour, _) in _DRAWN.items()}
LETTERS = {bucket: letter for bucket, (_, letter) in _DRAWN.items()}
#: Colours of :data:`dask_efficiency.accounts.cluster.presence.GPU_ACTIVITIES`; that of copies is from the same search.
GPU_COLOURS: dict[str, str] = {"kernels": COLOURS[Bucket.GPU], "copies": "#0d5173", "idle": COLOURS[Bucket.IDLE]}
#: Colours of causes. A figure shows the causes of one bucket only, so colours may repeat.
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
        "cluster": COLOURS[Bucket.FAILED],
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

#: Colours of memory as in Dask's dashboard, where results are blue, the rest of a process is paler, and what is spilled
#: is grey; and of results by prefix, from the search for buckets.
MEMORY_COLOURS: dict[str, str] = {"managed": "#3b5bff", "unmanaged": "#b9c5ff", "spilled": "#808080"}
PREFIX_COLOURS = ("#0a3cf0", "#1d86ee", "#0d5173", "#791ba5", "#549857", "#ce47aa")
#: Colour of the rest that is no bucket of its own.
OTHER_COLOUR = "#ccaed2"
#: Colour systems of rich in which all buckets look different.
DISTINCT_COLOURS = ("256", "truecolor")


def luminance(colour: str) -> float:
    """Relative luminance of a colour ``#rrggbb``, from 0 (black) to 1 (white), as WCAG 2.2 defines it."""
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else float(((c + 0.055) / 1.055) ** 2.4) for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ink(colour: str) -> str:
    """Black or white, whichever reads better on the colour."""
    # at 0.179 both have the same contrast, (L + 0.05) / 0.05 == 1.05 / (L + 0.05)
    return "#000000" if luminance(colour) > 0.179 else "#ffffff"


@dataclass(frozen=True, slots=True)
class BucketShare:
    """Share of a bucket in the finalized time."""

    bucket: Bucket
    nanoseconds: int
    #: Rounded so that all parts make 1000.
    tenths_of_percent: int


def finalized_parts(breakdown: Breakdown) -> tuple[BucketShare, ...]:
    """Useful and lost time by bucket, good time first and then the losses from the largest down."""
    return parts_of({bucket: ns for bucket, ns in in_order(breakdown).items() if bucket is not Bucket.RUNNING})


def parts_of(parts: Mapping[Bucket, int]) -> tuple[BucketShare, ...]:
    """Shares of buckets in their sum."""
    tenths = apportion(list(parts.values()), 1000)
    return tuple(BucketShare(bucket, ns, share) for (bucket, ns), share in zip(parts.items(), tenths, strict=True))


def percent_of(part: BucketShare) -> str:
    """Per cent of a part as shown; ``<0.1`` if it rounds to nothing."""
    return format_percent(part.tenths_of_percent) if part.tenths_of_percent else "<0.1"


def in_order(breakdown: Breakdown) -> dict[Bucket, int]:
    """Nanoseconds by bucket without ``no-work``: good time, losses from the largest down, ``running``."""
    parts = {Bucket(name): ns for name, ns in breakdown.to_nanoseconds().items()}
    lost = [bucket for bucket in parts if bucket not in (*GOOD, Bucket.NO_WORK, Bucket.RUNNING)]
    lost.sort(key=lambda bucket: -parts[bucket])
    good = [bucket for bucket in GOOD if bucket in parts]
    last = [Bucket.RUNNING] if Bucket.RUNNING in parts else []
    return {bucket: parts[bucket] for bucket in (*good, *lost, *last)}


#: Label of the wedge that holds all small ones.
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Wedge:
    """One wedge; angles are turns in [0, 1], clockwise from twelve o'clock."""

    label: str
    colour: str
    nanoseconds: int
    start: float
    stop: float
    #: Per cent without the sign; those of all wedges add up to 100.
    percent: str

    @property
    def share(self) -> float:
        """Share of the whole pie, in (0, 1]."""
        return self.stop - self.start


def wedges(nanoseconds: Mapping[str, int], *, at_most: int = 7) -> tuple[Wedge, ...]:
    """Pie of time by bucket, the largest first; what does not fit is folded into :data:`OTHER`, which comes last."""
    ranked = sorted(((Bucket(name), ns) for name, ns in nanoseconds.items() if ns), key=lambda item: -item[1])
    tenths = apportion([ns for _, ns in ranked], 1000)
    slices = [(str(bucket), COLOURS[bucket], ns, t) for (bucket, ns), t in zip(ranked, tenths, strict=True)]
    if len(slices) > at_most:
        rest = slices[at_most - 1 :]
        slices[at_most - 1 :] = [(OTHER, OTHER_COLOUR, sum(s[2] for s in rest), sum(s[3] for s in rest))]
    total = sum(ns for _, ns in ranked)
    found, before = [], 0
    for label, colour, ns, share in slices:
        found.append(Wedge(label, colour, ns, before / total, (before + ns) / total, format_percent(share)))
        before += ns
    return tuple(found)


def radians(turn: float) -> float:
    """An angle as mathematics and Bokeh count it: anticlockwise from three o'clock."""
    return math.pi / 2 - 2 * math.pi * turn


def point(turn: float, radius: float) -> tuple[float, float]:
    """A point around the origin, with y downward as in SVG."""
    return radius * math.cos(radians(turn)), -radius * math.sin(radians(turn))


def label_point(wedge: Wedge, radius: float) -> tuple[float, float]:
    """Position of a wedge's label, at a distance from the origin, with y downward."""
    if wedge.share == 1:
        return 0.0, 0.0
    return point((wedge.start + wedge.stop) / 2, radius)


def svg_path(wedge: Wedge, radius: float) -> str:
    """A wedge's outline around the origin as an SVG path."""
    if wedge.share == 1:
        # an arc that ends where it starts is not drawn
        half = f"A{radius:g} {radius:g} 0 0 1 "
        return f"M0 {-radius:g}{half}0 {radius:g}{half}0 {-radius:g}Z"
    start, stop = (_pair(point(turn, radius)) for turn in (wedge.start, wedge.stop))
    return f"M0 0L{start}A{radius:g} {radius:g} 0 {int(wedge.share > 0.5)} 1 {stop}Z"


def _pair(xy: tuple[float, float]) -> str:
    # adding 0 turns -0.0 into 0.0
    return " ".join(f"{round(number, 3) + 0:g}" for number in xy)
