"""Sections on P2P shuffles, moved bytes, memory, and users' own labels."""

from __future__ import annotations

from dask_efficiency.accounts.metered import BYTES, SECONDS
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.report.metered import own_labels, shuffle_times, transfer_times
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import Amount
from dask_efficiency.show.document import SCREEN, Extent, Section, Table, section
from dask_efficiency.show.figures import format_bytes, format_count, format_seconds, name_of, named, workers_named

#: Seconds of waiting for the worker that sent last, from which it is named. A guess.
MIN_WAITED_SECONDS = 0.01
#: Seconds from which a part of transfers is said. A guess.
MIN_TRANSFER_SECONDS = 0.1


def shuffles(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """P2P shuffles by phase, their bytes, and the worker that sent last with those that waited."""
    times = shuffle_times(report.metered, report.by_prefix)
    if times is None:
        return Section("P2P shuffles")
    rows = [(phase, "in tasks", format_seconds(ns / 1e9)) for phase, ns in times.held_ns.items()]
    rows += [(phase, "in the background", format_seconds(seconds)) for phase, seconds in times.background.items()]
    wrote = f"wrote {_amount_text(times.written, 'pieces')} to disk and read {format_bytes(times.read.nbytes)}"
    lines = [f"sent {_amount_text(times.sent, 'messages')}, {wrote}"]
    (last, longest), *others = sorted(times.at_barriers.items(), key=lambda item: -item[1]) or [("", 0.0)]
    if longest >= MIN_WAITED_SECONDS:
        waits = [(workers_named([worker]), longest - sent) for worker, sent in reversed(others)]
        waited = named([f"{worker} for {format_seconds(seconds)}" for worker, seconds in waits])
        last_text = f"{workers_named([last])}, which was still sending for {format_seconds(longest)}"
        lines.append(f"at barriers all others waited for {last_text}" + (f": {waited}" if waited else ""))
    return section("P2P shuffles", *lines, Table(("phase", "where", "time"), tuple(rows), words=(0, 1)))


def moved(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Bytes of results that were spilled, read back, or sent between workers."""
    rows = tuple((name_of(way), format_bytes(one.nbytes), f"{one.count:,}") for way, one in report.moved.items())
    return section("Data moved", _peak(report), *_transfers(report), Table(("way", "bytes", "count"), rows))


def _transfers(report: EfficiencyReport) -> list[str]:
    """Seconds of transfers by part, if they are worth a line."""
    lines = []
    for way, parts in transfer_times(report.metered).items():
        worth = {words: seconds for words, seconds in parts.items() if seconds >= MIN_TRANSFER_SECONDS}
        if worth:
            shown = ", ".join(f"{words} {format_seconds(seconds)}" for words, seconds in worth.items())
            lines.append(f"workers, {way} results: {shown}")
    return lines


def _peak(report: EfficiencyReport) -> str:
    """Worker process with the largest peak of memory, and the part of it in results."""
    worker, most = next(iter(report.memory.items()), ("", None))
    if most is None or not most.peak:  # of one client of several only results are told
        return ""
    held = format_bytes(most.peak - most.unmanaged_at_peak)
    return f"most memory at a time: {format_bytes(most.peak)} by {workers_named([worker])}, {held} of it for results"


def memory(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Results by prefix over time, and what tasks take while they run, with how sure that is."""
    found = report.byte_seconds
    skew = {prefix: one for prefix, one in report.skew.items() if one.working_count}
    prefixes = dict.fromkeys([*found, *sorted(skew, key=lambda prefix: -skew[prefix].max_working)])
    rows = []
    for prefix in list(prefixes)[: extent.prefixes]:
        held, spilled = found.get(prefix, (0.0, 0.0))
        working, how = _working(skew[prefix]) if prefix in skew else ("", "")
        over_time = [f"{format_bytes(round(value))} s" if value else "" for value in (held, spilled)]
        rows.append((name_of(prefix), *over_time, working, how))
    few = f"the {len(rows)} largest of {len(prefixes)}" if len(prefixes) > len(rows) else ""
    head = ("prefix", "in memory", "on disk", "while a task runs", "how sure")
    return section("Memory by prefix", few, Table(head, tuple(rows), words=(0, 4)))


def _working(one: Skew) -> tuple[str, str]:
    median, most = format_bytes(round(one.median_working)), format_bytes(round(one.max_working))
    how = "alone" if one.working_alone else "shared equally"
    return f"{median}, at most {most}", f"{format_count(one.working_count, 'task')}, {how}"


def labels(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Values of users' own labels in their tasks."""
    found = list(own_labels(report.metered).items())
    rows = tuple(
        (name_of(label), name_of(prefix) or "(no prefix)", _value_text(value, unit))
        for (label, unit, prefix), value in found[: extent.prefixes]
    )
    few = f"the {len(rows)} largest of {len(found)}" if len(found) > len(rows) else ""
    return section("Your own labels", few, Table(("label", "prefix", "counted"), rows, words=(0, 1)))


def _value_text(value: float, unit: str) -> str:
    if unit == SECONDS:
        return format_seconds(value)
    return format_bytes(value) if unit == BYTES else f"{value:,.6g} {name_of(unit)}"


def _amount_text(amount: Amount, what: str) -> str:
    return f"{format_bytes(amount.nbytes)} in {amount.count:,} {what}"
