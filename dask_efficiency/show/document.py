"""Document: what is said, from the top to the bottom, as values; no renderer is known here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dask_efficiency.accounts.buckets import DESCRIPTIONS, Bucket
from dask_efficiency.accounts.causes import DESCRIPTIONS as CAUSES_MEAN
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.show.colours import COLOURS
from dask_efficiency.show.parts import Part, percent_of


@dataclass(frozen=True, slots=True)
class Label:
    """A text with a square in its colour before it, which says more when it is pointed at."""

    text: str
    #: Empty for no square.
    colour: str = ""
    hint: str = ""
    #: Whether it names a part of what stands above it.
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
    """A plain bar in a row of a table."""

    #: Of the longest bar in the table, in [0, 1].
    share: float


@dataclass(frozen=True, slots=True)
class Stack:
    """A bar of several parts in a row of a table."""

    slices: tuple[Slice, ...]
    #: What the whole width stands for, as the sizes.
    whole: int


@dataclass(frozen=True, slots=True)
class Change:
    """A bar to the right for what grew and to the left for what shrank."""

    #: Of the largest change in the table, in [-1, 1].
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
    """A worker's value beside those of its peers: the least, the median and the most."""

    value: float
    median: float
    low: float
    high: float
    hint: str


Cell: TypeAlias = str | Label
Drawing: TypeAlias = Share | Stack | Change | Strip | Peers


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of words and figures, each with a drawing where it has one."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    #: Positions of the columns of words; the others are of figures.
    words: tuple[int, ...] = (0,)
    #: Positions of the rows that are sums of those above them.
    sums: tuple[int, ...] = ()
    #: Positions of other rows that stand out.
    strong: tuple[int, ...] = ()
    #: One for each row, None for a row without; empty where no row has one.
    drawings: tuple[Drawing | None, ...] = ()
    #: Position of the column behind which the drawings stand, and what is written over them.
    drawn_behind: int = 0
    drawn_head: str = ""
    #: What is written over the hints of the first cells, where they are to be read without pointing.
    hint_head: str = ""
    #: Whether a reader may sort the rows.
    sortable: bool = False


@dataclass(frozen=True, slots=True)
class Aside:
    """A sentence of less weight."""

    text: str


@dataclass(frozen=True, slots=True)
class ByBucket:
    """Time by bucket as a pie and a bar."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Legend:
    """What colours mean, each with a figure, which may be empty."""

    entries: tuple[tuple[Label, str], ...]


@dataclass(frozen=True, slots=True)
class Sides:
    """Bars above each other, to compare."""

    #: What each is called, how long it is as a share of the longest, and its parts.
    bars: tuple[tuple[str, float, tuple[Slice, ...]], ...]
    legend: Legend


@dataclass(frozen=True, slots=True)
class Through:
    """Threads by what they did, through a run."""

    timeline: Timeline
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a flame graph. All names in it are harmless."""

    name: str
    #: Its time, and its share of the whole and of its cause.
    said: str
    #: Nanoseconds to the left of it, and its own.
    left: int
    ns: int
    #: 0 for the whole, 1 for causes, 2 for prefixes, and so on.
    depth: int
    colour: str


@dataclass(frozen=True, slots=True)
class Flames:
    """Time by cause, prefix and stack, as boxes below those that they are part of."""

    #: The whole first, and each before those in it.
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Along:
    """A bar along a run, from its start to its end."""

    #: Colour and meaning of each stretch, its first step, and the step after its last.
    stretches: tuple[tuple[Label, int, int], ...]
    steps: int
    #: How long the run was.
    length: str


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve: where it stands, between what it is, and where it would be ideally."""

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

    #: At least one, in the order of their places, which are above 0.
    points: tuple[Point, ...]
    #: What is written below the axis.
    axis: str
    #: What it shows, for readers that cannot see it.
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


Figure: TypeAlias = ByBucket | Sides | Legend | Through | Flames | Along | Curve | Strips | Code
Block: TypeAlias = "str | Aside | Table | Figure | Section"


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a document. All names in it are harmless."""

    title: str
    #: In reading order; a string is a sentence.
    blocks: tuple[Block, ...] = ()
    #: It bears on how far the report can be trusted, so a renderer does not fold it away.
    caveat: bool = False
    #: It is long, and few will read it.
    folded: bool = False
    #: It may stand beside another that is narrow.
    narrow: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """Its sentences, without those of other sections in it."""
        return tuple(block for block in self.blocks if isinstance(block, str))

    @property
    def table(self) -> Table:
        """Its first table; one without columns where it has none."""
        return next((block for block in self.blocks if isinstance(block, Table)), Table((), ()))

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The rows of its first table, as text."""
        return tuple(tuple(map(str, row)) for row in self.table.rows)

    @property
    def sections(self) -> tuple[Section, ...]:
        """The sections in it."""
        return tuple(block for block in self.blocks if isinstance(block, Section))


@dataclass(frozen=True, slots=True)
class Document:
    """All that is said of one thing. A renderer is a function of this and of nothing else."""

    title: str
    #: How much it covers; may be empty.
    context: str
    #: What is said first, without a full stop.
    headline: str
    sections: tuple[Section, ...]
    #: Sentences below the sections.
    last: tuple[str, ...] = ()
    #: What is said of each finding, the first one first: what and where, and what to do. Stands below the headline.
    findings: tuple[tuple[str, ...], ...] = ()
    #: What stands below that.
    figure: ByBucket | Sides | None = None
    #: The main figures by name.
    stats: tuple[tuple[str, str], ...] = ()
    #: Below all else: what measured, and when.
    footer: str = ""
    #: What a page is called in a browser, where that is not its title.
    page_title: str = ""
    #: Anything that JSON can hold, for programs that read a page; None for nothing.
    data: Any = field(default=None, compare=False)


def section(title: str, *blocks: Block, caveat: bool = False, folded: bool = False, narrow: bool = False) -> Section:
    """A section of the blocks that say something."""
    return Section(title, tuple(block for block in blocks if not is_empty(block)), caveat, folded, narrow)


def with_content(*sections: Section) -> tuple[Section, ...]:
    """Those sections that say something."""
    return tuple(section for section in sections if section.blocks)


def is_empty(block: Block) -> bool:
    """Whether a block says nothing: an empty sentence, a table without rows, or a section without blocks."""
    match block:
        case str(text) | Aside(text):
            return not text
        case Table(rows=rows) | Strips(table=Table(rows=rows)):
            return not rows
        case Legend(entries):
            return not entries
        case Flames(boxes):
            return not boxes
        case Section(blocks=blocks):
            return not blocks
    return False


def bucket_label(bucket: str) -> Label:
    """A bucket's name, colour and meaning; of any other text, the text."""
    if bucket not in set(Bucket):
        return Label(bucket)
    return Label(str(bucket), COLOURS[Bucket(bucket)], DESCRIPTIONS[Bucket(bucket)])


def cause_label(bucket: str, cause: str) -> Label:
    """A cause's name and meaning, below its bucket."""
    return Label(cause, hint=CAUSES_MEAN.get(Bucket(bucket), {}).get(cause, ""), is_part=True)


def slices_of(parts: tuple[Part, ...]) -> tuple[Slice, ...]:
    """The parts of a bar of time by bucket."""
    return tuple(Slice(bucket_label(part.bucket), part.nanoseconds, percent_of(part)) for part in parts)


def legend_of(slices: tuple[Slice, ...]) -> Legend:
    """What the colours of a bar mean, with the per cent of each."""
    return Legend(tuple((each.label, f"{each.percent} %") for each in slices))
