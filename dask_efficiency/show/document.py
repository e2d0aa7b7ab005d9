"""Document: the content of a report as values, in reading order; renderers are elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from dask_efficiency.accounts.buckets import BUCKET_DESCRIPTIONS, Bucket
from dask_efficiency.accounts.buckets import CAUSE_DESCRIPTIONS as CAUSES_MEAN
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.show.drawn_buckets import COLOURS, BucketShare, percent_of
from dask_efficiency.show.figures import NAME_LENGTH

#: Rows of a folded table. A guess that bounds a page's size.
MAX_ROWS = 250


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows and characters for which there is room, of workers and GPUs for those that did least."""

    workers: int
    gpus: int
    prefixes: int
    kernels: int
    kernel_name: int
    #: True for a page: drawings, and folded details and whole tables.
    drawn: bool


#: Rows on a screen. A guess.
SCREEN = Extent(workers=8, gpus=8, prefixes=8, kernels=8, kernel_name=NAME_LENGTH, drawn=False)
#: Rows on a page; the rest is folded. A guess.
PAGE = Extent(workers=30, gpus=16, prefixes=20, kernels=20, kernel_name=64, drawn=True)


@dataclass(frozen=True, slots=True)
class Label:
    """A text, with a coloured square before it if it has a colour, and a hint that shows on hover."""

    text: str
    colour: str = ""
    hint: str = ""
    #: True for a part of the row above it.
    is_part: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Slice:
    """One part of a bar."""

    label: Label
    size: int
    #: Per cent of the whole, without the sign.
    percent: str


@dataclass(frozen=True, slots=True)
class Share:
    """A plain bar in a row of a table: a share of the longest one, in [0, 1]."""

    share: float


@dataclass(frozen=True, slots=True)
class Stack:
    """A bar of several parts in a row of a table, whose width stands for the whole."""

    slices: tuple[Slice, ...]
    whole: int


@dataclass(frozen=True, slots=True)
class ChangeBar:
    """A bar to the right for what grew and to the left for what shrank: a share of the largest change, in [-1, 1]."""

    share: float
    colour: str


@dataclass(frozen=True, slots=True)
class Strip:
    """One cell for each of many workers, darker where a share is larger."""

    shares: tuple[float, ...]
    #: Of a single worker, where several share a cell.
    largest: float
    colour: str


@dataclass(frozen=True, slots=True)
class Peers:
    """A worker's value compared with its peers': the lowest, the median and the highest."""

    value: float
    median: float
    low: float
    high: float
    hint: str


Cell: TypeAlias = str | Label
Drawing: TypeAlias = "Share | Stack | ChangeBar | Strip | Peers | Levels"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of words and figures, each with a drawing where it has one."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    #: Positions of the columns of words, not figures; of the rows that are sums; and of others that stand out.
    words: tuple[int, ...] = (0,)
    sums: tuple[int, ...] = ()
    strong: tuple[int, ...] = ()
    #: One for each row, None for a row without; empty where no row has one.
    drawings: tuple[Drawing | None, ...] = ()
    #: Position of the column before the drawings, and the head over these.
    drawn_behind: int = 0
    drawn_head: str = ""
    #: Head of a column with the hints of the first cells; empty to show them on hover only.
    hint_head: str = ""
    sortable: bool = False


@dataclass(frozen=True, slots=True)
class Aside:
    """A sentence of less weight."""

    text: str


@dataclass(frozen=True, slots=True)
class ByBucket:
    """Time by bucket as a pie and a bar."""

    parts: tuple[BucketShare, ...]


@dataclass(frozen=True, slots=True)
class Legend:
    """Meaning of colours, each with a figure, which may be empty."""

    entries: tuple[tuple[Label, str], ...]


@dataclass(frozen=True, slots=True)
class Sides:
    """Bars above each other, to compare."""

    #: Name, length as a share of the longest, and parts.
    bars: tuple[tuple[str, float, tuple[Slice, ...]], ...]
    legend: Legend


@dataclass(frozen=True, slots=True)
class Through:
    """Threads by activity through a run."""

    timeline: Timeline
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Levels:
    """Amounts through a run, stacked, beside lines at amounts that matter."""

    bin_ns: int
    elapsed_ns: int
    #: From the bottom up: colour and hint, and the amount in each bin.
    areas: tuple[tuple[Label, tuple[int, ...]], ...]
    #: Amount and name of each line.
    lines: tuple[tuple[float, str], ...]
    #: Amount at the top of the axis, and its text.
    most: float
    top: str
    #: Description for readers that cannot see it.
    label: str
    #: True without an axis, for a cell of a table.
    small: bool = False


@dataclass(frozen=True, slots=True)
class Spark:
    """A line of blocks as high as shares in [0, 1], after a text."""

    text: str
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Trend:
    """Values of one run after the other, and the medians of stretches of them; shares of the largest value."""

    #: For each run its value, and a hint.
    points: tuple[tuple[float, str], ...]
    #: First run of each stretch, the one after its last, and its median.
    stretches: tuple[tuple[int, int, float], ...]
    #: Text of the largest value, at the top of the axis; and a description.
    top: str
    label: str


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a flame graph, with a harmless name."""

    name: str
    hint: str
    #: Nanoseconds to the left of it, and its own.
    left: int
    ns: int
    #: 0 for the whole, 1 for causes, 2 for prefixes, and so on.
    depth: int
    colour: str


@dataclass(frozen=True, slots=True)
class Flames:
    """Time by cause, prefix and stack, as boxes: the whole first, and each before those in it."""

    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Along:
    """A bar along a run, from its start to its end."""

    #: Colour and meaning of each stretch, its first step, and the step after its last.
    stretches: tuple[tuple[Label, int, int], ...]
    steps: int
    length: str


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve, with its band and its ideal value."""

    at: float
    label: str
    seconds: float
    low: float
    high: float
    ideal: float
    hint: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds by size, on an axis of doublings, with a band around them."""

    #: At least one, in order of ``at``, which is above 0.
    points: tuple[Point, ...]
    axis: str
    #: Description for readers that cannot see it.
    label: str


@dataclass(frozen=True, slots=True)
class Strips:
    """A table of strips, and the names of the workers that each cell stands for."""

    table: Table
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A piece of code."""

    text: str


Figure: TypeAlias = (
    ByBucket | Sides | Legend | Through | Levels | Spark | Trend | Flames | Along | Curve | Strips | Code
)
Block: TypeAlias = "str | Aside | Table | Figure | Section"


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a document, in reading order; a string is a sentence. All names in it are harmless."""

    title: str
    blocks: tuple[Block, ...] = ()
    #: True if it limits the trust in the report, so that no renderer folds it away.
    caveat: bool = False
    folded: bool = False
    #: True if it may share a row with another narrow one.
    narrow: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """Its own sentences."""
        return tuple(block for block in self.blocks if isinstance(block, str))

    @property
    def table(self) -> Table:
        """Its first table; an empty one where it has none."""
        return next((block for block in self.blocks if isinstance(block, Table)), Table((), ()))

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """Rows of its first table, as text."""
        return tuple(tuple(map(str, row)) for row in self.table.rows)

    @property
    def sections(self) -> tuple[Section, ...]:
        """Sections in it."""
        return tuple(block for block in self.blocks if isinstance(block, Section))


class HasSection(Protocol):
    """A value, such as a prediction, with a section for the page of another."""

    @property
    def section(self) -> Section: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Document:
    """Content of one report; the only input of a renderer."""

    title: str
    #: Scope of the report; may be empty.
    context: str
    #: First sentence, without a full stop.
    headline: str
    sections: tuple[Section, ...]
    #: Sentences below the sections.
    last: tuple[str, ...] = ()
    #: Below the headline: for each the finding with its place, and the advice.
    findings: tuple[tuple[str, ...], ...] = ()
    figure: ByBucket | Sides | None = None
    #: Main figures by name.
    stats: tuple[tuple[str, str], ...] = ()
    footer: str = ""
    #: Title in a browser, if it differs.
    page_title: str = ""
    #: Anything that JSON can hold, for programs that read a page.
    data: Any = field(default=None, compare=False)


def section(title: str, *blocks: Block, caveat: bool = False, folded: bool = False, narrow: bool = False) -> Section:
    """Build a section of the blocks that are not empty."""
    return Section(title, tuple(block for block in blocks if not is_empty(block)), caveat, folded, narrow)


def with_content(*sections: Section) -> tuple[Section, ...]:
    """Keep the sections that have blocks."""
    return tuple(section for section in sections if section.blocks)


def is_empty(block: Block) -> bool:
    """Check for an empty block: an empty sentence, a table without rows, a section without blocks."""
    match block:
        case str(held) | Aside(held) | Table(rows=held) | Strips(table=Table(rows=held)):
            return not held
        case Legend(held) | Flames(held) | Section(blocks=held):
            return not held
    return False


def bucket_label(bucket: str) -> Label:
    """Label of a bucket with its colour and meaning; any other text stays as it is."""
    if bucket not in set(Bucket):
        return Label(bucket)
    return Label(str(bucket), COLOURS[Bucket(bucket)], BUCKET_DESCRIPTIONS[Bucket(bucket)])


def cause_label(bucket: str, cause: str) -> Label:
    """Label of a cause with its meaning, as a part of its bucket."""
    return Label(cause, hint=CAUSES_MEAN.get(Bucket(bucket), {}).get(cause, ""), is_part=True)


def slices_of(parts: tuple[BucketShare, ...]) -> tuple[Slice, ...]:
    """Parts of a bar of time by bucket."""
    return tuple(Slice(bucket_label(part.bucket), part.nanoseconds, percent_of(part)) for part in parts)


def legend_of(slices: tuple[Slice, ...]) -> Legend:
    """Legend of a bar, with the per cent of each colour."""
    return Legend(tuple((each.label, f"{each.percent} %") for each in slices))
