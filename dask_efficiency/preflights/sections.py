"""Preflight: which workers are slow before a job starts, what each showed, and who was not tested."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.preflights.judge.components import MEANINGS, Component
from dask_efficiency.preflights.judge.links import SlowPath
from dask_efficiency.preflights.judge.result import PreflightResult
from dask_efficiency.show.document import Aside, Document, Section, Table, section, with_content
from dask_efficiency.show.figures import format_bytes, format_count, format_seconds, format_share, name_of, named
from dask_efficiency.straggler.wording import MEANINGS as CAUSES

#: Rows of a table; of the rest the number is given.
MAX_ROWS = 20

#: Hosts of a side of a slow path that are named.
MAX_HOSTS = 4

#: What a column of the table of measurements is called; the words of the component stand below it.
HEADS = {
    Component.CPU: "CPU",
    Component.CPU_ALL: "all threads",
    Component.PYTHON: "Python",
    Component.MEMORY: "memory",
    Component.GPU: "GPU",
    Component.GPU_MEMORY: "GPU memory",
    Component.GPU_COPY: "GPU copies",
    Component.GPU_PEER: "GPU peers",
    Component.SOAK: "soak",
    Component.DISK: "disk",
    Component.SEND: "send",
    Component.RECEIVE: "receive",
    Component.LATENCY: "latency",
    Component.COLLECTIVE: "all-reduce",
    Component.WORKLOAD: "workload",
}


def document(found: PreflightResult) -> Document:
    """What a preflight found."""
    context = "" if found.reason else f"{format_count(len(found.subjects), 'worker')}, {format_seconds(found.seconds)}"
    sections = with_content(
        _slow(found), _paths(found), _advice(found), _measured(found), _not_tested(found), _notes(found)
    )
    return Document("Preflight", context, headline(found), sections)


def headline(found: PreflightResult) -> str:
    """All of it in one sentence, without a full stop."""
    if found.reason:
        return f"Nothing was tested: {found.reason}"
    if not found.tested and not found.findings:
        return "Nothing was tested"
    tested = len(found.subjects) - len(found.not_tested)
    of = format_count(tested, "worker")
    path = _path_sentence(found.paths[0]) if found.paths else ""
    if not found.findings:
        return path or f"None of {of} is slow"
    first = found.findings[0]
    more = f", and {len(found.findings) - 1} more" if len(found.findings) > 1 else ""
    meaning, _ = CAUSES[first.cause]
    if first.cause is Cause.UNRESPONSIVE:
        return f"Of {of}, {_who(first)} does not answer{more}"
    times = "fails" if first.effect is None else f"takes {first.effect:.2f} times as long as its peers"
    return f"Of {of}, {_who(first)} {times}: {meaning}{more}{f'. {path}' if path else ''}"


def _slow(found: PreflightResult) -> Section:
    rows = tuple(
        (
            _who(one),
            name_of(one.host),
            str(one.cause),
            ", ".join(HEADS[Component(item.signal)] for item in one.evidence) or "-",
            "-" if one.effect is None else f"{one.effect:.2f} x",
            format_share(one.confidence),
        )
        for one in found.findings[:MAX_ROWS]
    )
    heads = ("worker", "host", "cause", "slow in", "takes", "sure")
    return section("Slow", _rest(found.findings), Table(heads, rows, words=(0, 1, 2, 3)))


def _paths(found: PreflightResult) -> Section:
    return section("Slow paths", *(f"{_path_sentence(path)}." for path in found.paths[:MAX_ROWS]))


def _path_sentence(path: SlowPath) -> str:
    times = f"takes {path.ratio:.2f} times as long" if math.isfinite(path.ratio) else "fails"
    return f"The path between {_hosts(path.one)} and {_hosts(path.other)} {times} as those within each side"


def _hosts(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - MAX_HOSTS} more" if len(hosts) > MAX_HOSTS else ""
    return ", ".join(map(name_of, hosts[:MAX_HOSTS])) + more


def _advice(found: PreflightResult) -> Section:
    causes = dict.fromkeys(one.cause for one in found.findings[:MAX_ROWS])
    return section("What to do", *(f"{cause}: {CAUSES[cause][1]}" for cause in causes))


def _measured(found: PreflightResult) -> Section:
    """How many times as long each worker takes, the slowest first."""
    ratios = found.ratios
    components = [one for one in Component if any(one in of_worker for of_worker in ratios.values())]
    if not components:
        return section("")
    measured = [one for one in found.subjects if ratios[one.name]]
    worst = sorted(measured, key=lambda one: -max(ratios[one.name].values()))
    best = ("the best", *(_reading(component, found) for component in components))
    rows = tuple(
        (name_of(one.name), *(_times(ratios[one.name].get(component)) for component in components))
        for one in worst[:MAX_ROWS]
    )
    said = "How many times as long as the median of the fastest half: " + "; ".join(
        f"{HEADS[component]}, {MEANINGS[component].words}" for component in components
    )
    heads = ("", *(HEADS[component] for component in components))
    return section("Measured", _rest(measured), Table(heads, (*rows, best), words=(0,)), Aside(f"{said}."))


def _reading(component: Component, found: PreflightResult) -> str:
    """The best reading of all."""
    meaning = MEANINGS[component]
    known = [value for one in found.subjects if math.isfinite(value := found.reading(one, component)) and value > 0]
    if not known:
        return "-"
    if meaning.is_time:
        return format_seconds(min(known))
    best = max(known)
    if meaning.unit == "B/s":
        return f"{format_bytes(best)}/s"
    return f"{best / 1e9:.1f} GF/s" if meaning.unit == "FLOP/s" else f"{best / 1e6:.1f} M/s"


def _times(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.2f} x" if math.isfinite(ratio) else "failed"


def _not_tested(found: PreflightResult) -> Section:
    rows = [(name_of(name), "all", name_of_reason(why)) for name, why in found.not_tested.items()]
    rows += [(name_of(one.name), "all", name_of_reason(one.broken)) for one in found.subjects if one.broken]
    common = _missing_everywhere(found)
    rows += [
        (name_of(one.name), HEADS[component], name_of_reason(why))
        for one in found.subjects
        for component, why in one.missing.items()
        if component not in common
    ]
    heads = ("worker", "what", "why")
    return section("Not tested", _rest(rows), Table(heads, tuple(rows[:MAX_ROWS]), words=(0, 1, 2)), caveat=True)


def name_of_reason(why: str) -> str:
    """A reason in a table, made harmless."""
    return name_of(why) if len(why) <= 80 else name_of(f"{why[:77]}...")


def _missing_everywhere(found: PreflightResult) -> dict[Component, str]:
    """What was measured of no worker, with the first reason."""
    reasons: dict[Component, str] = {}
    for one in found.subjects:
        for component, why in one.missing.items():
            reasons.setdefault(component, why)
    return {
        component: why
        for component, why in reasons.items()
        if not any(component in one.readings and component not in one.missing for one in found.subjects)
    }


def _notes(found: PreflightResult) -> Section:
    lines = [f"{note}." for note in found.notes]
    lines += [
        f"Measured nowhere: {HEADS[one]}: {name_of_reason(why)}." for one, why in _missing_everywhere(found).items()
    ]
    for names in found.too_few:
        lines.append(
            f"Too few to tell who is slow: {named(names)}. Those are compared that have as many threads, as much "
            "memory and the same resources, three of them at least."
        )
    if found.retired:
        lines.append(f"Retired: {named(found.retired)}.")
    if found.kept:
        lines.append(
            f"Kept, though slow: {named(found.kept)}. Of {len(found.subjects)} workers "
            f"{len(found.slow) - len(found.kept)} may be retired: --retire-share allows more, and two are always left."
        )
    return section("Notes", *lines, caveat=True)


def _rest(rows: Sequence[object]) -> str:
    rest = len(rows) - MAX_ROWS
    return f"{rest} more are not shown." if rest > 0 else ""


def _who(one: SlowWorker) -> str:
    return name_of(one.worker) if one.worker else name_of(f"all of {one.host}")
