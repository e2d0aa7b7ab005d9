"""Numbers and names for display: rounded so that they add up, bounded, harmless.

Text that others wrote (names of tasks, workers, machines and files, messages of errors) is printed through one of four
functions: :func:`name_of` for a name in a document, :func:`named` for several, :func:`sentence` for a message, and
:func:`harmless`, which these three call, for a line whose length is bounded already. Log records and lines of commands
pass through :func:`harmless` as wholes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

#: Characters of a name; a longer one is cut in the middle. Dask's keys are a prefix of words and a 32-digit token.
NAME_LENGTH = 40
#: Characters of a sentence; a longer one is cut likewise. A guess: five lines of a terminal.
NOTE_LENGTH = 400
#: Names listed in a line before "and N more". A guess: they fit 80 columns mostly.
NAMES_IN_A_LINE = 3
#: Rows of a table on a screen, which a page has whole; and rows where there is no room for all. By eye.
ROWS_ON_A_SCREEN, FEW_ROWS = 8, 5
#: Rows of a minor table, such as of reasons, settings and errors; and sentences beside a table that has more. By eye.
MINOR_ROWS, SENTENCES_BESIDE = 12, 3
#: Characters of a detail that others wrote, in a line: an error, a setting's value, who held a lock, an operation, or
#: what a message has. By eye.
DETAIL_LENGTH = 100
_UNITS = ("B", "kiB", "MiB", "GiB", "TiB", "PiB")
#: Name that joblib's backend for Dask gives a task of several calls of a function.
_BATCH = re.compile(r"\bbatch_of_(\w+?)_\d+_calls\b")


@dataclass(frozen=True, slots=True)
class Scale:
    """Unit and number of decimals in which a column of figures is written."""

    #: "ms", "s", "min" or "h"; empty for a bare number.
    unit: str
    #: The unit in words, to follow "thread-".
    word: str
    #: Base units (seconds) in the unit.
    size: float
    decimals: int

    def steps(self, value: float) -> int:
        """Value in whole steps of the last decimal shown."""
        return round(value / self.size * 10.0**self.decimals)

    def text(self, steps: int) -> str:
        """Figures of a number of steps, without the unit."""
        return f"{steps / 10**self.decimals:.{self.decimals}f}"

    def figure(self, value: float) -> str:
        """Figures of a value, without the unit."""
        return self.text(self.steps(value))


def time_scale(largest_seconds: float, whole_seconds: float | None = None) -> Scale:
    """Scale that shows the largest of a column of times with three or four figures; their whole sets the unit."""
    whole = largest_seconds if whole_seconds is None else whole_seconds
    if not whole >= 1.0:
        unit, word, size = "ms", "milliseconds", 1e-3
    elif whole < 120.0:
        unit, word, size = "s", "seconds", 1.0
    elif whole < 7200.0:
        unit, word, size = "min", "minutes", 60.0
    else:
        unit, word, size = "h", "hours", 3600.0
    largest = largest_seconds / size
    return Scale(unit, word, size, 2 if largest < 10 else 1 if largest < 1000 else 0)


def money_scale(largest: float) -> Scale:
    """Scale for a column of prices: hundredths, or finer where the sum is small."""
    fine = 2 if not 0 < largest < 1 else min(2 - math.floor(math.log10(largest)), 9)
    return Scale("", "", 1.0, fine)


def apportion(weights: Sequence[int], whole: int) -> list[int]:
    """Divide a whole number in proportion to weights into whole numbers, by Hamilton's method (largest remainders).

    Each is less than 1 from its exact share, and all are 0 where every weight is; of equal weights, the earlier gets
    the larger number.
    """
    total = sum(weights)
    if not total:
        return [0] * len(weights)
    parts = [weight * whole // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: -(weights[i] * whole % total))
    for i in by_remainder[: whole - sum(parts)]:
        parts[i] += 1
    return parts


def format_seconds(seconds: float) -> str:
    """A duration with a unit, in two or three figures: ``"14.2 s"``, ``"350 ms"``, ``"2.5 h"``."""
    if not math.isfinite(seconds):
        return "unknown"
    if 0 < seconds < 0.0001:
        return "<0.1 ms"
    number, unit, _ = _in_unit(seconds)
    return f"{number} {unit}"


def format_bytes(nbytes: float) -> str:
    """A size with a unit, as Dask writes it: ``"1.2 MiB"``, ``"350 kiB"``, ``"17 B"``."""
    if not math.isfinite(nbytes):
        return "unknown"
    power = _power_of(nbytes)
    value = nbytes / 1024.0**power
    return f"{_short(value) if power else round(value)} {_UNITS[power]}"


def in_unit_of_largest(sizes: Sequence[float]) -> tuple[list[str], str]:
    """Sizes in the unit of the largest one, without it; and the unit."""
    power = _power_of(max(sizes))
    return [_short(size / 1024.0**power) for size in sizes], _UNITS[power]


def _power_of(nbytes: float) -> int:
    # the unit is chosen after rounding, so that 1023.9 kiB is not "1024 kiB"
    return next((i for i in range(len(_UNITS)) if nbytes < 1023.5 * 1024.0**i), len(_UNITS) - 1)


def format_thread_time(ns: int) -> str:
    """Thread time in words: ``"14.2 thread-seconds"``."""
    number, _, word = _in_unit(ns / 1e9)
    return f"{number} thread-{word}"


def _in_unit(seconds: float) -> tuple[str, str, str]:
    # the unit is chosen after rounding, so that 0.9999 s is not "1000 ms"
    if 0 < seconds < 0.9995:
        return f"{seconds * 1e3:.{int(seconds < 0.0095)}f}", "ms", "milliseconds"
    if seconds < 119.5:
        return _short(seconds), "s", "seconds"
    if seconds < 119.5 * 60:
        return _short(seconds / 60), "min", "minutes"
    return _short(seconds / 3600), "h", "hours"


def _short(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 99.95 else f"{value:.0f}"


def format_share(share: float) -> str:
    """A share as per cent: ``"62 %"``, ``"3.4 %"``; only 0 is 0 % and only 1 is 100 %."""
    if math.isnan(share):
        return "-"
    percent = 100 * share
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 0 < percent < 9.95:
        return f"{percent:.1f} %"
    if 99 < percent < 100:
        return f"{min(percent, 99.9):.1f} %"
    return f"{percent:.0f} %"


def format_percent(tenths: int) -> str:
    """Tenths of a per cent as per cent, without the sign."""
    return f"{tenths / 10:.1f}"


def harmless(name: str) -> str:
    r"""The name with invisible characters written as escapes (``\x1b``, ``\u202e``).

    Names come from users: an escape sequence would otherwise steer the reader's terminal, and a
    right-to-left override would show another name than the one that is meant.
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in str(name))


def shorten(text: str, length: int = NAME_LENGTH) -> str:
    """Cut the middle out of a text that is longer than ``length``."""
    if len(text) <= length:
        return text
    kept = length - len("...")
    if kept <= 0:
        return text[:length]
    head = kept - kept // 3
    return f"{text[:head]}...{text[len(text) - kept // 3 :]}"


def name_of(name: str) -> str:
    """A user's name for display: harmless and bounded. Of joblib's batches, as scikit-learn has them, the function."""
    name = _BATCH.sub(lambda batch: f"joblib: {batch[1].strip('_')}", shorten(str(name), 4 * NAME_LENGTH))
    # cut before and after: escaping makes a name longer, and a name may be megabytes long
    return shorten(harmless(name), NAME_LENGTH)


def sentence(text: str) -> str:
    """A user's or a scheduler's sentence for display: harmless and bounded."""
    return shorten(harmless(shorten(str(text), NOTE_LENGTH)), NOTE_LENGTH)


def lower_first(text: str) -> str:
    """A sentence that follows other words: its first letter small, unless the first word is in capitals, as GPU is."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def upper_first(text: str) -> str:
    """A text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def named(names: Sequence[str]) -> str:
    """First of some names, and how many there are more."""
    more = len(names) - NAMES_IN_A_LINE
    return ", ".join(map(name_of, names[:NAMES_IN_A_LINE])) + (f" and {more} more" if more > 0 else "")


def labelled(ranked: Sequence[str], one: str, many: str, at_most: int) -> dict[str, list[str]]:
    """Label the first of some users' names, and the rest together; with the names that each label stands for."""
    labels: dict[str, list[str]] = {}
    for name in ranked[:at_most]:
        label = name_of(name) or f"(no {one})"
        # two names may look the same once they are cut
        labels[label if label not in labels else f"{label} ({len(labels) + 1})"] = [name]
    if rest := ranked[at_most:]:
        labels[f"{len(rest)} more {one if len(rest) == 1 else many}"] = list(rest)
    return labels


def format_count(number: int, noun: str) -> str:
    """A number of things: ``"1 worker"``, ``"2 workers"``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_number(number: float, digits: int = 3) -> str:
    """A number in some figures, a large one without an exponent: ``"3.7"``, ``"3700"``."""
    return f"{number:.{digits}g}" if abs(number) < 10**digits - 0.5 else f"{number:.0f}"


def workers_named(names: Sequence[str]) -> str:
    """Workers in a sentence: ``"worker 0"``, ``"workers 0, 1"``; names that say so themselves stand alone."""
    if all("worker" in name.lower() for name in names):
        return named(names)
    return f"{'worker' if len(names) == 1 else 'workers'} {named(names)}"


def format_times(effect: float | None) -> str:
    """A multiple, ``1.50x``; a dash if unknown."""
    if effect is None:
        return "-"
    return f"{effect:.2f}x" if effect < 9.995 else f"{format_number(effect)}x"


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts ``worker-2`` before ``worker-10``."""
    # Bounded, because a name may be megabytes long, and Python refuses to read a number of 5,000 digits.
    parts = re.split(r"(\d{1,18})", name[:200])
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts if part]


#: Characters of a label. A guess.
LABEL_LENGTH = 28
#: Start of a formula to TeX or MathML.
_FORMULA = re.compile(r"(?<=\$)(?=\$)|(?<=\\)(?=[\[(])")

_WORD_JOINER = "\u2060"


def label(name: str) -> str:
    """A user's name as a short, visible label that TeX and MathML do not read as a formula."""
    return _FORMULA.sub(_WORD_JOINER, shorten(harmless(shorten(name, 4 * LABEL_LENGTH)), LABEL_LENGTH))


#: Characters of a kernel's name; a longer one is cut before it is parsed, as templates may nest to hundreds of kB.
MAX_KERNEL_NAME = 2000
#: Namespaces such as ``at::native::``, and lambdas' enclosing scopes.
_NAMESPACES = re.compile(r"(?:\b\w+|\(anonymous namespace\)|<unnamed>)::")
_RETURNS = re.compile(r"^(?:void|static|__global__)\s+")


def kernel_name(name: str) -> str:
    """A kernel's name without return type, arguments and namespaces; a name that is no C++ stays as it is."""
    name = name[:MAX_KERNEL_NAME].strip()
    bare = _NAMESPACES.sub("", _RETURNS.sub("", name))
    bare = _without_arguments(bare).replace(" >", ">").replace("> >", ">>").strip()
    return bare or name


def _without_arguments(name: str) -> str:
    """Cut the name at the parenthesis that opens its arguments: the first one outside of templates."""
    depths = accumulate((character == "<") - (character == ">") for character in name)
    opens = (place for place, depth in enumerate(depths) if name[place] == "(" and depth <= 0 and place)
    return name[: next(opens, len(name))]
