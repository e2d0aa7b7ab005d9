"""Explanations of findings: the sections of docs/buckets.md, looked up by name or title, as sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from dask_efficiency.report.kinds import AT_PLACES, BESIDE, IN_LIBRARIES, KINDS
from dask_efficiency.report.recipe_text import Pattern, Recipe
from dask_efficiency.report.recipes import known_recipes
from dask_efficiency.show.document import Section, section
from dask_efficiency.show.figures import format_share
from dask_efficiency.show.terminal import wrapped

#: In an installed package, and in a checkout.
_PAGES = (Path(__file__).with_name("buckets.md"), Path(__file__).parents[2] / "docs" / "buckets.md")
#: Titles that findings have in some runs, or for kinds without a row in the tables of kinds.
_OTHER_TITLES = {
    **{title: kind for kind, titles in AT_PLACES.items() for title in titles.values()},
    IN_LIBRARIES: "thread-noncpu/lock",
    "Slow worker": "slow-worker",
    "Slow host": "slow-worker",
}

#: Beginning of a title that counts tasks.
_COUNTED = re.compile(r"^\d+ tasks? (was |were )?")
_HEADING = re.compile(r"^(#+) (.*)$")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_EMPHASIS = re.compile(r"(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])")
#: Target of links; rule below the head of a table.
_LEFT_OUT = re.compile(r"^\(.*\)=$|^\|[-| ]*\|$")


def titles() -> dict[str, str]:
    """Title of each kind, as first screens show it; a kind whose title varies has its beginning."""
    return {kind: found.title for kind, found in {**KINDS, **BESIDE}.items()} | {"slow-worker": "Slow worker"}


def explain(name: str) -> Section:
    """Explanation of a finding.

    Parameters
    ----------
    name
        A kind (``"thread-noncpu/sleep"``), its cause where one bucket has it (``"sleep"``), or a finding's title
        (``"Sleeping"``), of which a part is enough where one kind has it; or a recipe's name or title.

    Raises
    ------
    ValueError
        If it is the name of none, or of several.
    """
    sections = explanations()
    if not sections:
        raise FileNotFoundError(f"there is no {_PAGES[0].name} in the package; expected what its wheel brings along")
    found = next((kinds for kinds in _named(name, [*sections]) if kinds), [])
    # A recipe's title may begin like that of a kind.
    if not found and (recipe := _recipe_named(name)) is not None:
        return explained_recipe(recipe)
    found = found or next((kinds for kinds in _alike(name, [*sections]) if kinds), [])
    if not found and (recipe := _recipe_alike(name)) is not None:
        return explained_recipe(recipe)
    if len(found) != 1:
        what, known = ("several kinds", found) if found else ("no kind", sorted(sections))
        raise ValueError(f"{name!r:.80} is {what}; expected one of {', '.join(known)}")
    return sections[found[0]]


def _recipe_named(name: str) -> Recipe | None:
    """Find the recipe with this name or title."""
    wanted = _plain(name)
    return next((one for one in known_recipes() if wanted in (one.name, one.title.casefold())), None)


def _recipe_alike(name: str) -> Recipe | None:
    """Find the only recipe with this in its title."""
    within = [one for one in known_recipes() if _plain(name) and _plain(name) in one.title.casefold()]
    return within[0] if len(within) == 1 else None


def explained_recipe(recipe: Recipe) -> Section:
    """Explanation of a recipe: its advice, and what it is given for."""
    share = f"more than {format_share(recipe.share)}"
    seen = [(share, recipe.stacks), ("some", recipe.also), ("none", recipe.unless)]
    lines = [f"- stacks, in {part} of the loss: {_stack_text(pattern)}" for part, of in seen for pattern in of]
    lines += [f"- lines that sent the tasks, of {share} of them: {pattern}" for pattern in recipe.sent]
    lines += [f"- tasks, in {share} of the loss: {pattern}" for pattern in recipe.tasks]
    lines += [f"- tasks, in some of the loss: {pattern}" for pattern in recipe.also_tasks]
    lines += [f"- its title, and another cure, where this is so: {fact}" for fact in recipe.unless_fact]
    head = (
        f"It is given for {', '.join(f'`{kind}`' for kind in recipe.kinds)} by what was seen (any line of each sort):"
    )
    return section(f"{recipe.name}: {recipe.title}", recipe.advice, head, *lines)


def _stack_text(pattern: Pattern) -> str:
    return " > ".join(" ".join(step) for step in pattern)


def as_lines(explained: Section, width: int) -> list[str]:
    """Explanation as lines of a terminal."""
    lines = [explained.title]
    for text in explained.lines:
        is_item = text.startswith("- ")
        folded = wrapped(text.removeprefix("- "), width, "  " if is_item else "")
        folded[0] = f"- {folded[0].lstrip()}" if is_item else folded[0]
        lines += [*([] if is_item and lines[-1].startswith(("- ", "  ")) else [""]), *folded]
    return lines


def _named(name: str, kinds: list[str]) -> Iterator[list[str]]:
    """Kinds that have a name or title, the surest way of reading it first."""
    wanted = _plain(name)
    yield [kind for kind in kinds if kind == wanted]
    yield [kind for kind in kinds if kind.endswith(f"/{wanted}")]
    yield _by_title(kinds, wanted.__eq__)


def _alike(name: str, kinds: list[str]) -> Iterator[list[str]]:
    """Kinds whose title a name begins with, or is a part of."""
    wanted = _plain(name)
    yield _by_title(kinds, wanted.startswith)
    yield sorted({kind for title, kind in _titled() if wanted and wanted in title and kind in kinds})


def _by_title(kinds: list[str], is_it: Callable[[str], bool]) -> list[str]:
    meant = {kind for title, kind in _titled() if kind in kinds and is_it(title)}
    # a bucket whose cause is unknown has the title of this cause
    return sorted(kind for kind in meant if kind.partition("/")[0] == kind or kind.partition("/")[0] not in meant)


def _titled() -> list[tuple[str, str]]:
    """Titles with their kinds."""
    return [(title.casefold(), kind) for kind, title in titles().items()] + [
        (title.casefold(), kind) for title, kind in _OTHER_TITLES.items()
    ]


def _plain(name: str) -> str:
    wanted = name.strip(" `.:").casefold()
    return _COUNTED.sub(lambda counted: "tasks were " if counted[1] else "tasks ", wanted)


def explanations() -> dict[str, Section]:
    """Explanations by kind; a bucket's names its causes. Empty if the package has no page."""
    text = next((page.read_text(encoding="utf-8") for page in _PAGES if page.exists()), "")
    lines = [line for line in text.splitlines() if not _LEFT_OUT.match(line)]
    heads = [(i, len(match[1]), match[2]) for i, line in enumerate(lines) if (match := _HEADING.match(line))]
    found = {}
    for place, (begin, level, title) in enumerate(heads):
        end = next((i for i, other, _ in heads[place + 1 :] if other <= level or title.startswith("`")), len(lines))
        if title.startswith("`") and title.endswith("`"):
            kind = title.strip("`")
            found[kind] = section(_head(kind), *_paragraphs(lines[begin + 1 : end]))
    for kind, one in found.items():
        causes = [name for name in found if name.startswith(f"{kind}/")]
        if causes:
            found[kind] = section(one.title, *one.blocks, f"Its causes: {', '.join(f'`{name}`' for name in causes)}.")
    return found


def _head(kind: str) -> str:
    title = titles().get(kind, "")
    return f"{kind}: {title}" if title else kind


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Paragraphs, items of lists and rows of tables of Markdown, each in a line."""
    gathered: list[str] = []
    for line in [*lines, ""]:
        if gathered and (not line.strip() or re.match(r"- |\|", line)):
            yield _sentence(" ".join(gathered))
            gathered = []
        if line.strip():
            gathered.append(line.strip())


def _sentence(text: str) -> str:
    if text.startswith("|"):
        text = f"- {': '.join(cell.strip() for cell in text.strip('| ').split('|'))}"
    return _EMPHASIS.sub(r"\1", _LINK.sub(r"\1", text))
