"""Labels: users' names beside a bar, short, visible, and nothing but text."""

from __future__ import annotations

import re

from dask_efficiency.show.figures import harmless, shorten

#: Longest label.
NAME_LENGTH = 28

#: What a reader of TeX or MathML takes for the beginning of a formula.
_FORMULA = re.compile(r"(?<=\$)(?=\$)|(?<=\\)(?=[\[(])")

_WORD_JOINER = "\u2060"


def label(name: str) -> str:
    """A user's name as a text that is short, visible, and nothing but text to a reader of formulas."""
    return _FORMULA.sub(_WORD_JOINER, shorten(harmless(shorten(name, 4 * NAME_LENGTH)), NAME_LENGTH))
