"""Made: what the lines at which a client made collections say of its graphs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import Made
from dask_efficiency.show.figures import name_of, sentence
from dask_efficiency.show.finding import MOST

#: Share of the tasks, or of those of a prefix, from which parts of collections explain them; and share of the chunks of
#: the most finely cut array from which another one is as finely cut. Guesses.
AS_MANY, AS_FINE = 0.25, 0.5
#: Dataframes of one line from which they are parts of one. A guess.
MANY = 50
NOT_MADE = Made("", 0, 0, 0, 0, ())
_PLACE = re.compile(r"(?<!\S)\S+:\d+(?!\S)")


def made_for(report: EfficiencyReport, text: str) -> dict[str, Made]:
    """Collections by line, without those that other lines sent than the text names, as far as that is known.

    Dataframes stay if that is sure: tasks were sent of a prefix that no other line made. Those of arrays and bags may
    be gone once they are fused: lines stay of which none was sent elsewhere, unless all that was sent is dataframes.
    """
    sent = {prefix for prefix, by in report.computed_by.items() if any(names(text, at) for at in _PLACE.findall(by))}
    if not sent:
        return dict(report.made)
    elsewhere = report.computed_by.keys() - sent
    sure = {line for line in report.made if _has(sent, _own_prefixes(report, line))}
    maybe = {line for line, one in report.made.items() if not (_of_frames(one) or _has(elsewhere, one.prefixes))}
    known = sure if sure and all(_of_frames(report.made[line]) for line in sure) else sure | maybe
    return {line: one for line, one in report.made.items() if line in known or not one.prefixes}


def _own_prefixes(report: EfficiencyReport, line: str) -> set[str]:
    """Prefixes of collections of a line that no dataframe of other lines has, and of dataframes, no collection."""
    others = [one for other, one in report.made.items() if other != line]
    rivals = others if _of_frames(report.made[line]) else filter(_of_frames, others)
    return {*report.made[line].prefixes}.difference(*(one.prefixes for one in rivals))


def _of_frames(one: Made) -> bool:
    return one.frames > 0 or not one.parts


def _has(tasks: Iterable[str], prefixes: Iterable[str]) -> bool:
    """Check if tasks have one of these prefixes, also where several were fused."""
    names_of_tasks = "".join(f"-{prefix}- " for prefix in tasks)
    return any(f"-{prefix}-" in names_of_tasks for prefix in prefixes)


def made_most(report: EfficiencyReport) -> tuple[str, str]:
    """Line of the first collection that was cut about as finely as that of most tasks, and its call.

    Where no collection has that many parts, it is the line that made most parts of many. Empty where far more tasks ran
    than parts were made, as dataframes know theirs only when they are sent; and for a line that computes, too: what it
    computes may have been made before.
    """
    line, single = made_singly(report)
    if line:
        return line, single.called
    counts = [skew.count for skew in report.skew.values()]
    finest = max((one.largest for one in report.made.values()), default=0)
    if finest >= AS_MANY * max(counts, default=0) > 0:  # each operation has a task, of a prefix of its own, for a chunk
        line = next(line for line, one in report.made.items() if one.largest >= AS_FINE * finest)
    else:
        parts = {line: made.parts for line, made in report.made.items()}
        line = max(parts, key=parts.__getitem__, default="")
        if not line or parts[line] <= max(MOST * sum(parts.values()), AS_MANY * sum(counts)):
            return "", ""
    if any(names(text, line) for text in report.computed_by.values()):
        return "", ""
    return line, report.made[line].called


def asked_by(report: EfficiencyReport, prefix: str) -> str:
    """Words, after others, for the line that sent the tasks of a prefix, and the one that made them; may be empty."""
    line = report.computed_by.get(prefix, "")
    return (f", computed by {sentence(line)}" if line else "") + built_by(report, prefix)


def built_by(report: EfficiencyReport, prefix: str) -> str:
    """Words for the line that made most collections of a prefix, if that is another than the one that sent them.

    Empty if lines made dataframes of that prefix, too: how many tasks these have is not known.
    """
    made = {line: one for line, one in report.made.items() if prefix and prefix in one.prefixes}
    parts = {line: one.parts for line, one in made.items()}
    line = max(parts, key=parts.__getitem__, default="")
    if not line or parts[line] <= MOST * sum(parts.values()) or any(map(_of_frames, made.values())):
        return ""
    if names(report.computed_by.get(prefix, ""), line):
        return ""
    return ", " + built(line, report.made[line].called)


def built(line: str, called: str) -> str:
    """Words for a line at which a function built what is computed."""
    public = called and not called.startswith("_")
    return f"built by `{name_of(called)}` in {name_of(line)}" if public else f"built at {name_of(line)}"


def names(text: str, line: str) -> bool:
    """Check if a text names a line, such as ``etl.py:4``, which is none of ``etl.py:42``."""
    return re.search(rf"(?<!\S){re.escape(line)}(?!\d)", text) is not None


def made_singly(report: EfficiencyReport) -> tuple[str, Made]:
    """Line with dataframes that it made of a file or part each, by a function that takes many; empty if few."""
    found = [(line, one) for line, one in report.made.items() if one.frames >= MANY]
    return max(found, key=lambda each: each[1].frames, default=("", NOT_MADE))
