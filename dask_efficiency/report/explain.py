"""Explain: what a finding's kind means and what to do about it, from the page that the package brings along."""

from __future__ import annotations

import re
from pathlib import Path

#: In an installed package, and in a checkout.
_PAGES = (Path(__file__).with_name("buckets.md"), Path(__file__).parents[2] / "docs" / "buckets.md")

_HEADING = re.compile(r"^(#+) (.*)$")
#: Names a place for links.
_LABEL = re.compile(r"^\(.*\)=$")


def explain(kind: str) -> str:
    """The section of the page about a kind.

    Parameters
    ----------
    kind
        A bucket (``"spill"``), a bucket and a cause (``"thread-noncpu/sleep"``), or the cause alone where only one
        bucket has it (``"sleep"``).

    Raises
    ------
    ValueError
        If there is no such kind, or several; names those that there are.
    FileNotFoundError
        If the package was installed without its page.
    """
    sections = explained()
    if not sections:
        raise FileNotFoundError(f"there is no {_PAGES[0].name} in the package; expected what its wheel brings along")
    found = [name for name in sections if name == kind] or [name for name in sections if name.endswith(f"/{kind}")]
    if len(found) != 1:
        what, known = ("several kinds", found) if found else ("no kind", sorted(sections))
        raise ValueError(f"{kind!r:.80} is {what}; expected one of {', '.join(known)}")
    return sections[found[0]]


def explained() -> dict[str, str]:
    """Text by kind, with the kinds below it; empty if the package was installed without its page."""
    text = next((page.read_text(encoding="utf-8") for page in _PAGES if page.exists()), "")
    lines = [line for line in text.splitlines() if not _LABEL.match(line)]
    heads = [(i, len(match[1]), match[2]) for i, line in enumerate(lines) if (match := _HEADING.match(line))]
    found = {}
    for place, (begin, level, title) in enumerate(heads):
        end = next((i for i, other, _ in heads[place + 1 :] if other <= level or title.startswith("`")), len(lines))
        if title.startswith("`") and title.endswith("`"):
            found[title.strip("`")] = "\n".join(lines[begin:end]).strip()
    return found
