"""Pages in Markdown as the tests read them: headings, links and fenced blocks."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

#: What people read, and what a test holds to.
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "dashboards/README.md")),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "deploy").glob("*.md"),
    ]
)

_FENCED = re.compile(r"^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n)+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page, or an indented one, which has no language."""

    language: str
    text: str
    #: Of its first line in the page, from 1.
    line: int


def blocks(markdown: str) -> list[Block]:
    """All blocks, in order."""
    fenced = [
        Block(found["language"], found["text"], markdown.count("\n", 0, found.start("text")) + 1)
        for found in _FENCED.finditer(markdown)
    ]
    outside = _FENCED.sub(lambda found: re.sub(r"[^\n]", "", found[0]), markdown)
    indented = [
        Block("", re.sub(r"^ {4}", "", found[0], flags=re.MULTILINE), outside.count("\n", 0, found.start()) + 1)
        for found in _INDENTED.finditer(outside)
        if not re.search(r"^ *(-|\d+\.) [^\n]*(\n {2,}[^\n]*)*\n\n\Z", outside[: found.start()], re.MULTILINE)
    ]
    return sorted([*fenced, *indented], key=lambda block: block.line)


def links(markdown: str) -> list[tuple[str, str]]:
    """Path and anchor of each link and picture that leads to a place in the repository."""
    found: list[tuple[str, str]] = re.findall(
        r"\]\((?!https?:|mailto:)([^)#\s]*)#?([^)\s]*)\)", _FENCED.sub("", markdown)
    )
    return found


def anchors(markdown: str) -> list[str]:
    """The anchors that GitHub gives to the headings."""
    found: list[str] = []
    outside_code = re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", outside_code, flags=re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        earlier = sum(re.fullmatch(rf"{re.escape(words)}(-\d+)?", anchor) is not None for anchor in found)
        found.append(f"{words}-{earlier}" if earlier else words)
    return found
