"""Goal: whatever happens to a cluster, users' results are right, the sums are exact, and each lost second has a name.

``python -m benchmarks.chaos [--seed 1] [--seconds 600] [--only EVENT ...]`` has users work on a cluster of processes
with nannies, shuffling throughout, and lets one thing after the other happen to it, see :mod:`benchmarks.chaos_events`.
After each it judges: the buckets add up to the threads times their time by the scheduler's clock, a report's window
does, no exported counter falls, workers that vanished have a reason, and so has time that is not measured. In the end,
nobody is a straggler who is well, and the scheduler's memory has not grown. The same seed brings the same events in the
same order. ``--memory TASKS`` drives the state machines alone through these tasks, of a tenth as many prefixes, and
says what the plugin keeps.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import random
import re
import sys
import tempfile
import time
import urllib.request
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import psutil

from benchmarks.chaos_bed import Bed, Users, eventually, host, is_ours
from benchmarks.chaos_events import ENDS_WINDOWS, EVENTS, INJECTED
from benchmarks.figures import figure
from dask_efficiency import EfficiencyReport, efficiency_report, stragglers
from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.losses import NOT_KNOWN
from dask_efficiency.plugin.names import PLUGIN

#: By which the scheduler's process may grow after the first quarter of the events: its own memory, and its nannies'.
MAX_GROWTH = 150 * 2**20

#: Bytes by which what the plugin keeps may grow in the last four tenths of a million tasks: it remembers the hashes of
#: 500,000 keys, and a thousand prefixes.
MAX_KEPT_MORE = 8 * 2**20

#: Events that happen at least, however slow the machine is.
MIN_EVENTS = 5

_SAMPLE = re.compile(r"^(dask_efficiency_\w+_total(?:\{.*\})?) (\S+)$", re.MULTILINE)


async def _look(dask_scheduler: Any) -> dict[str, Any]:
    """The accounts at one instant: their errors, and what has no reason."""
    meter = dask_scheduler.plugins[PLUGIN]._meter
    accounts, cluster = meter.accounts, meter.accounts.cluster
    before = accounts.now()
    await meter.ask_snapshots()
    after = accounts.now()
    known = {presence: presence.finalized_ns + presence.running for presence in cluster.open()}
    # One that was there first began when it was metered, which the snapshot shows that travelled quickest.
    joined = {p: p.joined if p.received is None else min(p.joined, max(p.began, cluster.started)) for p in known}
    behind = {}
    for presence in cluster.present.values():
        ahead = presence.part("finalized").get(Bucket.UNMEASURED, 0)
        least, most = (presence.nthreads * (at - joined[presence]) for at in (before, after))
        if not least <= known[presence] <= most + ahead:
            behind[presence.name] = (known[presence] - least, known[presence] - most)
    total, names = cluster.breakdown().total_ns, cluster.by_worker()
    lives = sum(known.values()) + sum(stay.nthreads * (stay.left - stay.joined) for stay in cluster._departed)
    return {
        "session": accounts.session,
        "off": {
            "the lives of all workers": total - lives,
            "all workers' buckets": total - sum(row.total_ns for row in names.values()),
            "activities": total - sum(cluster.part("activity").values()),
        },
        "behind": behind,
        # What a worker did from its last snapshot to its removal is recorded when its accounts are closed.
        "here": sorted(cluster.present) == sorted(dask_scheduler.workers) and not cluster.leaving,
        "failed": [
            meter.guard.off,
            *(one._guard.off for one in (accounts.stragglers, accounts.stalls, accounts.time_left)),
            accounts.idle.guard.off,
            *meter.parts.failures(),
        ],
        "vanished": [(loss.worker, loss.why) for loss in cluster.losses if not loss.in_order],
        "unmeasured": {name: row.ns(Bucket.UNMEASURED) for name, row in names.items()},
        "ledgers": {p.name: p.received.incarnation for p in known if p.received is not None},
        "reasons": dict(cluster.reasons),
        "stays": [
            *((stay.nthreads, stay.joined, stay.left) for stay in cluster._departed),
            *((p.nthreads, joined[p], p.left) for p in known),
        ],
        "switched off": [p.address for p in cluster.present.values() if p.off],
        "port": dask_scheduler.http_server.port,
        "rss": psutil.Process().memory_info().rss,
    }


class Judge:
    """Looks at the cluster after each event.

    Parameters
    ----------
    bed
        The cluster.
    """

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.defects: list[str] = []
        self.rss: list[int] = []
        self.vanished: Counter[str] = Counter()
        #: What was said to stand still, by the event after which it was.
        self.stalled: Counter[str] = Counter()
        self._counters: dict[str, float] = {}
        self._last: dict[str, Any] = {"session": None}
        self._logged = 0

    def found(self, event: str, defects: Sequence[str]) -> None:
        self.defects += [f"after {event!r}: {what}" for what in defects]
        for what in defects:
            print(f"    DEFECT {what}", flush=True)

    def look(self) -> dict[str, Any]:
        seen: dict[str, Any] = {}

        def settled() -> bool:
            seen.update(self.bed.client.run_on_scheduler(_look))
            return not seen["behind"] and seen["here"]

        try:
            eventually(settled, "snapshots that cover all time")
        except TimeoutError:
            self.found(
                "this", [f"not covered, or ahead: {seen['behind']}; all workers there, and others gone: {seen['here']}"]
            )
        return seen

    def step(self, event: str) -> None:
        """Judge what is there after an event."""
        seen, last = self.look(), self._last
        found = [f"{what}: {ns} ns off" for what, ns in seen["off"].items() if ns]
        found += [f"failed: {why}" for why in seen["failed"] if why and INJECTED not in why]
        found += [f"{name} vanished: {why or 'no reason'}" for name, why in seen["vanished"] if why in ("", NOT_KNOWN)]
        if seen["session"] == last["session"]:
            for name, ns in seen["unmeasured"].items():
                anew = seen["ledgers"].get(name, 0) != last["ledgers"].get(name, 1)
                if ns > last["unmeasured"].get(name, 0) and name not in seen["reasons"] and not anew:
                    found.append(f"{name} was not measured for {(ns - last['unmeasured'].get(name, 0)) / 1e9} s")
            self.vanished.update(why for _, why in seen["vanished"][len(last["vanished"]) :])
        else:
            self._counters.clear()
        for name, why in seen["reasons"].items():
            if name not in self.bed.disturbed and "left before its first snapshot" not in why:
                found.append(f"{name} is not measured: {why}")
        found += self._fallen(seen["port"])
        found += self._errors(event)
        self.found(event, found)
        self._last = seen
        self.rss.append(seen["rss"])
        for address in seen["switched off"]:
            self.bed.client.restart_workers([address], timeout=120, raise_for_error=False)

    def _fallen(self, port: int) -> list[str]:
        """Counters that are less than they were in this registration."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            now = {series: float(value) for series, value in _SAMPLE.findall(answer.read().decode())}
        fallen = [f"{s} fell from {self._counters[s]} to {n}" for s, n in now.items() if n < self._counters.get(s, 0)]
        self._counters |= now
        return fallen if now else ["nothing is exported"]

    def _errors(self, event: str) -> list[str]:
        text = self.bed.log.read_text(errors="replace")
        new, self._logged = text[self._logged :], len(text)
        for said in re.findall(r"Work stands still (\(.*\): .*)", new):
            self.stalled[f"{said} (after {event})"] += 1
        return [
            f"logged: {entry[:3_000]}"
            for entry in re.split(r"^(?=\d{4}-\d\d-\d\d |Traceback)", new, flags=re.MULTILINE)
            if is_ours(entry) and not re.search(f"{INJECTED}|no window|No space left", entry)
        ]

    def window(self, event: str, report: EfficiencyReport, times: Sequence[int]) -> None:
        """Judge the report of the window in which an event came: when it was asked for, open, to end, and there."""
        stays = self.bed.client.run_on_scheduler(_look)["stays"]

        def lived(start: int, stop: int) -> int:
            return sum(n * max(0, min(left or stop, stop) - max(joined, start)) for n, joined, left in stays)

        least, most, total = lived(*times[1:3]), lived(times[0], times[3]), report.breakdown.total_ns
        if not least <= total <= most + report.breakdown.ns(Bucket.UNMEASURED):
            self.found(event, [f"a report of {total} ns; expected {least} to {most}: {report.breakdown}"])
        rows = [row.to_nanoseconds() for rows in (report.by_prefix, report.by_worker) for row in rows.values()]
        self.found(
            event, [f"a report with less than nothing: {row}" for row in rows if min(row.values(), default=0) < 0]
        )


def schedule(seed: int, names: Sequence[str]) -> Iterator[tuple[str, random.Random]]:
    """Endless events, each with its random generator; all come once before any comes again."""
    rng = random.Random(seed)
    while True:
        for name in rng.sample(sorted(names), len(names)):
            yield name, random.Random(rng.random())


def chaos(seed: int, seconds: float, names: Sequence[str]) -> list[str]:
    """Let events happen for these seconds; returns the defects."""
    until, counts = time.monotonic() + seconds, Counter[str]()
    with tempfile.TemporaryDirectory() as folder, closing(Bed(Path(folder))) as bed:
        users = Users(bed, seed)
        judge = Judge(bed)
        with users.at_work():
            judge.step("the start")
            for name, bed.rng in schedule(seed, names):
                if time.monotonic() >= until and counts.total() >= MIN_EVENTS:
                    break
                counts[name] += 1
                print(f"{counts.total():4d} {name}", flush=True)
                _happen(bed, judge, name)
        judge.defects += users.defects
        _calm(bed, judge, users)
    grown = judge.rss[-1] - judge.rss[len(judge.rss) // 4]
    if grown > MAX_GROWTH:
        judge.defects.append(f"the scheduler's process grew by {grown / 2**20:.0f} MiB")
    print(f"\nseed {seed}; events: " + _counted(counts))
    print("work that was right: " + _counted(users.right))
    print("work done again: " + _counted(users.again))
    print("workers lost: " + _counted(judge.vanished))
    print("said to stand still: " + _counted(judge.stalled))
    print(f"the scheduler's process: {judge.rss[0] / 2**20:.0f} to {judge.rss[-1] / 2**20:.0f} MiB")
    for defect in judge.defects:
        print(f"DEFECT {defect}")
    figure("events", counts.total())
    figure("said to stand still", judge.stalled.total())
    figure("defects", len(judge.defects), at_most=0)
    return judge.defects


def _counted(counts: Counter[str]) -> str:
    return "; ".join(f"{n} x {what}" for what, n in counts.most_common()) or "none"


def _happen(bed: Bed, judge: Judge, name: str) -> None:
    """Let something happen in a report's window, and judge."""
    report = efficiency_report(client=bed.client)
    times = [time.monotonic_ns()]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with report:
            times.append(time.monotonic_ns())
            try:
                EVENTS[name](bed)
                bed.heal()
            except Exception as error:
                judge.found(name, [f"{type(error).__name__}: {error}"])
            times.append(time.monotonic_ns())
        times.append(time.monotonic_ns())
    messages = [str(one.message) for one in warned if issubclass(one.category, RuntimeWarning)]
    if (name in ENDS_WINDOWS) is not any("no window" in message for message in messages):
        judge.found(name, [f"its report says {messages}"])
    if not messages:
        judge.window(name, report.report, times)
    judge.step(name)


def _calm(bed: Bed, judge: Judge, users: Users) -> None:
    """Let nothing happen any more: nobody is slow then."""
    bed.heal()

    def calm() -> bool:
        for name in ("short tasks", "long tasks", "seceding"):
            users.do(name, 100)
        return not stragglers(bed.client)

    try:
        eventually(calm, "a cluster without stragglers")
    except TimeoutError:
        judge.defects.append(f"stragglers in the end: {stragglers(bed.client)}")
    judge.step("the end")


# -- memory ----------------------------------------------------------------------------------------

#: What is not ours, and what all share.
_NOT_OURS = ("distributed", "tornado", "asyncio", "bokeh", "logging", "prometheus_client", "dask", "threading", "zict")


def kept(roots: Sequence[object]) -> int:
    """Bytes of all that is held by these, and is not Dask's."""
    seen, todo, total = set[int](), [*roots], 0
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType)):
            continue
        if type(one).__module__.partition(".")[0] in _NOT_OURS:
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        todo += gc.get_referents(one)
    return total


def memory(tasks: int) -> None:
    """Drive the state machines through tasks, and fail if what the plugin keeps grows with them."""
    from benchmarks.one_process import MODES, WORK, run, session
    from benchmarks.state_machines import BATCH, Driver

    sizes: list[int] = []

    async def driven() -> None:
        async with session(MODES["on"], WORK["no-op"]) as here:
            await here.compute(20)
            driver = Driver(here, prefixes=tasks // 10)
            part = tasks // 10 // BATCH * BATCH
            for start in range(0, 10 * part, part):
                driver.compute(part, start)
                gc.collect()
                sizes.append(kept([here._meter, *here._worker.plugins.values()]))
                print(f"{start + part} tasks: {sizes[-1] / 2**20:.1f} MiB", flush=True)
            figure("kept", sizes[-1] / 2**20, "MiB")
            figure("kept more than after half", (sizes[-1] - sizes[5]) / 2**20, "MiB", at_most=MAX_KEPT_MORE / 2**20)
            os._exit(sizes[-1] - sizes[5] > MAX_KEPT_MORE)  # its connections are gone

    run(driven)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what happens, and what is wrong; the exit status says whether anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--only", nargs="+", choices=EVENTS, default=[*EVENTS], metavar="EVENT")
    parser.add_argument("--memory", type=int, metavar="TASKS")
    parser.add_argument("--host", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.host:
        host(int(args.host[0]), args.host[1])
        return
    if args.memory:
        memory(args.memory)
        return
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    sys.exit(bool(chaos(args.seed, args.seconds, args.only)))


if __name__ == "__main__":
    main()
