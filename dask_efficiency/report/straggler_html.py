"""Stragglers on a page: who and why, and each signal of theirs drawn beside that of their peers."""

from __future__ import annotations

import math

from dask_efficiency.report.blocks import Html, joined, line, table
from dask_efficiency.report.figures import format_share
from dask_efficiency.report.model import ReportValues
from dask_efficiency.report.page import section
from dask_efficiency.report.section import name_of
from dask_efficiency.report.sections import MAX_STRAGGLERS, format_times, stragglers
from dask_efficiency.straggler.finding import Evidence, Finding
from dask_efficiency.straggler.signals import LIVE, SIGNALS

#: Signals of a finding that are drawn.
MAX_EVIDENCE = 4

#: What a signal is called for people; one that is not here keeps its name.
SIGNAL_NAMES = {name: signal.live.words if signal.live else signal.words for name, signal in SIGNALS.items()}

#: Signals that are shares; the others are multiples of the peers' median.
SHARES = frozenset(name for name, signal in LIVE.items() if not signal.ratio)

#: Of the width, what is left free at both ends, in per cent.
_MARGIN = 4.0

RULES = """
.dask-efficiency .de-evidence td:nth-child(3){min-width:14em;width:40%;vertical-align:middle}
.dask-efficiency main .de-evidence svg.de-beside-peers{display:block;width:100%;height:18px;overflow:visible}
.dask-efficiency main .de-evidence rect.de-peers{fill:var(--de-dim);fill-opacity:.35}
.dask-efficiency .de-evidence line.de-axis{stroke:var(--de-line)}
.dask-efficiency .de-evidence line.de-median{stroke:var(--de-dim);stroke-width:2}
.dask-efficiency .de-evidence circle{fill:var(--de-warn)}
.dask-efficiency .de-evidence table{width:100%}
"""


def straggler_section(report: ReportValues) -> Html:
    """The section of a page; empty without stragglers."""
    part = stragglers(report)
    if not part.rows:
        return Html("")
    said = "Dot: the worker. Bar: its peers, from the least to the most, and their median. To the right is more."
    rows = [
        (who if i == 0 else "", *_cells(evidence))
        for finding in report.stragglers[:MAX_STRAGGLERS]
        for who in (_who(finding),)
        for i, evidence in enumerate(finding.evidence[:MAX_EVIDENCE])
    ]
    drawn = table(("", "signal", "", "it", "peers"), rows, words=(0, 1, 2)) if rows else Html("")
    evidence = Html(f'<div class="de-evidence">{drawn}{line(said, dim=True)}</div>') if rows else Html("")
    whole = table(part.heads, part.rows, words=part.words, sortable=True)
    return section(part.title, whole, joined(map(line, part.lines)), evidence)


def _who(finding: Finding) -> str:
    return name_of(finding.worker) if finding.worker else f"host {name_of(finding.host)}"


def _cells(evidence: Evidence) -> tuple[str, ...]:
    name = SIGNAL_NAMES.get(evidence.signal) or name_of(evidence.signal)
    return name, _drawn(evidence), _figure(evidence, evidence.value), _figure(evidence, evidence.peers)


def _figure(evidence: Evidence, value: float) -> str:
    """A value of a signal in its unit."""
    return format_share(value) if evidence.signal in SHARES and 0 <= value <= 1 else format_times(value)


def _drawn(evidence: Evidence) -> Html:
    values = (evidence.value, evidence.peers, evidence.low, evidence.high)
    if not all(map(math.isfinite, values)):
        return Html("")
    least, most = min(values), max(values)
    # near zero the distance to zero is what counts
    least = 0.0 if 0 <= least < 0.5 * most else least
    width = 100 - 2 * _MARGIN
    value, peers, low, high = (_MARGIN + width * ((each - least) / (most - least or 1.0)) for each in values)
    shapes = (
        '<line class="de-axis" x1="0" x2="100%" y1="9" y2="9"/>'
        f'<rect class="de-peers" x="{low:.1f}%" width="{max(high - low, 0.6):.1f}%" y="4" height="10" rx="2"/>'
        f'<line class="de-median" x1="{peers:.1f}%" x2="{peers:.1f}%" y1="2" y2="16"/>'
        f'<circle cx="{value:.1f}%" cy="9" r="5"/>'
    )
    own, least_peer, most_peer = (_figure(evidence, each) for each in (evidence.value, evidence.low, evidence.high))
    said = f"{own}; peers {least_peer} to {most_peer}"
    return Html(f'<svg class="de-beside-peers" height="18" role="img"><title>{said}</title>{shapes}</svg>')
