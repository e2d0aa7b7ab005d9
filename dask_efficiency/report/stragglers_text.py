"""Stragglers of a run that is over, in a terminal: plain ASCII for any screen."""

from __future__ import annotations

import math

from dask_efficiency.report.figures import NAME_LENGTH, format_seconds, format_share
from dask_efficiency.report.section import NAMES_IN_A_LINE, Section, name_of
from dask_efficiency.report.sections import long_task
from dask_efficiency.report.text import NARROWEST, ascii_text, plain_section, wrapped
from dask_efficiency.straggler.finding import Evidence, Finding
from dask_efficiency.straggler.offline import Judgement
from dask_efficiency.straggler.signals import SIGNALS
from dask_efficiency.straggler.wording import MEANINGS

#: Findings in full; of the rest the number is told.
MAX_FINDINGS = 20

#: Long tasks that are named.
MAX_LONG_TASKS = 5

#: Findings whose signals are shown one by one.
WITH_SIGNALS = 3


def render_plain(found: Judgement, name: str, width: int = 80) -> str:
    """The findings as ASCII text.

    Parameters
    ----------
    found
        What is to be shown.
    name
        Of the run.
    width
        In characters; less than 40 counts as 40.

    Returns
    -------
    str
        Lines without trailing spaces and without a newline at the end.
    """
    width = max(width, NARROWEST)
    blocks = [
        [*wrapped(f"Stragglers of {name_of(name) or 'a run'}", width), *wrapped(verdict(found), width)],
        *(plain_section(section, width) for section in sections(found)),
    ]
    return "\n\n".join("\n".join(map(str.rstrip, map(ascii_text, block))) for block in blocks)


def verdict(found: Judgement) -> str:
    """All of it in one sentence."""
    of = f"{found.workers} worker{'' if found.workers == 1 else 's'}"
    if not found.findings:
        long = f" No worker is slow: {long_task(found.long_tasks[0])}." if found.long_tasks else ""
        return f"None among {of}.{long}"
    first = found.findings[0]
    many = f", and {len(found.findings) - 1} more" if len(found.findings) > 1 else ""
    lost = (
        "" if first.seconds_lost is None else f"; without that the run is {format_seconds(first.seconds_lost)} shorter"
    )
    meaning, _ = MEANINGS[first.cause]
    return f"Of {of}, {_who(first)} takes {_times(first)} for the same work: {meaning}{lost}{many}."


def _times(finding: Finding) -> str:
    return "longer" if finding.effect is None else f"{finding.effect:.2f} times as long"


def sections(found: Judgement) -> tuple[Section, ...]:
    """Every section that has something to say."""
    shown = found.findings[:MAX_FINDINGS]
    parts = [_table(found), _advice(shown), *(_signals(one) for one in shown[:WITH_SIGNALS]), _notes(found)]
    return tuple(part for part in parts if part.lines or part.rows)


def _table(found: Judgement) -> Section:
    shown = found.findings[:MAX_FINDINGS]
    rest = len(found.findings) - len(shown)
    rows = tuple(
        (
            _who(one),
            name_of(one.host),
            str(one.cause),
            "-" if one.effect is None else f"{one.effect:.2f} x",
            "-" if one.seconds_lost is None else format_seconds(one.seconds_lost),
            format_share(one.confidence),
        )
        for one in shown
    )
    lines = (f"{rest} more are not shown.",) if rest else ()
    return Section("Slow workers", lines, ("worker", "host", "cause", "takes", "costs", "sure"), rows, words=(0, 1, 2))


def _advice(shown: tuple[Finding, ...]) -> Section:
    causes = dict.fromkeys(one.cause for one in shown)
    return Section("What to do", tuple(f"{cause}: {MEANINGS[cause][1]}" for cause in causes))


def _signals(one: Finding) -> Section:
    heads = ("signal", "its own", "peers", "from", "to", "readings")
    return Section(f"How {_who(one)} compares with its peers", (), heads, tuple(map(_row, one.evidence)))


def _row(item: Evidence) -> tuple[str, ...]:
    figures = (item.value, item.peers, item.low, item.high)
    shown = [f"{figure:.2f} x" if math.isfinite(figure) else "-" for figure in figures]
    words = SIGNALS[item.signal].words if item.signal in SIGNALS else name_of(item.signal)
    return (words, *shown, str(item.tasks))


def _notes(found: Judgement) -> Section:
    lines = list(found.notes)
    told = 0 if found.findings else 1
    lines += [f"A long tail: {long_task(long)}." for long in found.long_tasks[told:MAX_LONG_TASKS]]
    if found.insufficient:
        named = ", ".join(map(name_of, found.insufficient[:NAMES_IN_A_LINE]))
        more = len(found.insufficient) - NAMES_IN_A_LINE
        lines.append(f"Too little to judge by: {named}{f' and {more} more' if more > 0 else ''}.")
    if any(one.seconds_lost is not None for one in found.findings):
        lines.append("What a straggler costs comes from a replay of the run with it as fast as its peers.")
    return Section("Notes", tuple(lines), caveat=True)


def _who(one: Finding) -> str:
    return name_of(one.worker) if one.worker else name_of(f"all of {one.host[:NAME_LENGTH]}")
