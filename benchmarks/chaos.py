"""Goal: whatever happens to a cluster, users' results are right, the sums are exact, and each lost second has a name.

``python -m benchmarks.chaos [--seed 1] [--seconds 600] [--only EVENT ...]`` has users work on a cluster of processes
with nannies, shuffling throughout, and lets one thing after the other happen to it, see :mod:`benchmarks.chaos_events`.
After each it judges: the buckets add up to the threads times their time by the scheduler's clock, a report's window
does, no exported counter falls, workers that vanished have a reason, and so has time that is not measured. In the end,
nobody is a straggler who is well, and the scheduler's memory has not grown. The same seed brings the same events in the
same order. ``--memory TASKS`` drives the state machines alone through so many tasks, of a tenth as many prefixes, and
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
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from benchmarks.chaos_bed import OURS, Bed, Users, accounts_of, eventually, host
from benchmarks.chaos_events import ENDS_WINDOWS, EVENTS, INJECTED
from dask_efficiency import efficiency_report, stragglers
from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.losses import NOT_KNOWN
from dask_efficiency.plugin.names import PLUGIN

#: By which the scheduler's process may grow after the first quarter of the events: its own memory, and its nannies'.
MAX_GROWTH = 150 * 2**20

#: What the plugin keeps after all tasks, by what it keeps after a tenth of them.
MAX_KEPT_RATIO = 1.3

_SAMPLE = re.compile(r"^(dask_efficiency_\w+_total(?:\{.*\})?) (\S+)$", re.MULTILINE)

async def _look(dask_scheduler: Any) -> dict[str, Any]:
    """What the accounts say, at one instant: by how much they are off, and what they have no reason for."""
    meter, accounts = dask_scheduler.plugins[PLUGIN]._meter, accounts_of(dask_scheduler)
    cluster, before = accounts.cluster, accounts.now()
    await meter.ask_snapshots()
    after = accounts.now()
    known = {presence: presence.recorded_ns + presence.running for presence in cluster._open()}
    left = sum(stay.nthreads * (stay.left - stay.joined) for stay in cluster._departed)
    off = {
        "all that is recorded, and the lives of all workers": cluster.breakdown().total_ns - left - sum(known.values()),
        "workers, and all": sum(row.total_ns for row in cluster.by_worker().values()) - cluster.breakdown().total_ns,
        "activities, and buckets": sum(cluster.activity().values()) - cluster.breakdown().total_ns,
    }
    behind = {}
    for presence in cluster.present.values():
        unmeasured = presence.part("recorded").get(Bucket.UNMEASURED, 0)
        least, most = (presence.nthreads * (at - presence.joined) for at in (before, after))
        if not least <= known[presence] <= most + unmeasured:
            behind[presence.name] = (known[presence] - least, known[presence] - most)
    return {
        "session": accounts.session,
        "off": {what: ns for what, ns in off.items() if ns},
        "behind": behind,
        "here": sorted(cluster.present) == sorted(dask_scheduler.workers),
        "failed": [meter.guard.off, accounts.stragglers._guard.off, accounts.idle.off, *meter._parts.failures()],
        "vanished": [(loss.worker, loss.why) for loss in cluster.losses if not loss.in_order],
        "unmeasured": {name: row.ns(Bucket.UNMEASURED) for name, row in cluster.by_worker().items()},
        "ledgers": {p.name: p.received.incarnation for p in cluster._open() if p.received is not None},
        "reasons": dict(cluster.reasons),
        "stays": [
            *((s.nthreads, s.joined, s.left) for s in cluster._departed),
            *((p.nthreads, p.joined, p.left) for p in known),
        ],
        "switched off": [p.address for p in cluster.present.values() if p.off],
        "port": dask_scheduler.http_server.port,
        "rss": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
    }


class Judge:
    """Looks at the cluster after each event.

    Parameters
    ----------
    bed
        The cluster.
    users
        Who works there.
    """

    def __init__(self, bed: Bed, users: Users) -> None:
        self.bed, self.users = bed, users
        self.defects: list[str] = []
        self.rss: list[int] = []
        self.vanished: Counter[str] = Counter()
        self._counters: dict[str, float] = {}
        self._last: dict[str, Any] = {"session": None}
        self._logged = 0

    def look(self) -> dict[str, Any]:
        """What the accounts say once all workers have answered."""
        seen: dict[str, Any] = {}

        def settled() -> bool:
            seen.update(self.bed.client.run_on_scheduler(_look))
            return not seen["behind"] and seen["here"]

        try:
            eventually(settled, "snapshots that cover all time")
        except TimeoutError:
            self.defects.append(f"not covered, or ahead of the clock: {seen['behind']}, all there: {seen['here']}")
        return seen

    def step(self, event: str) -> None:
        """Judge what is there after an event."""
        seen, last = self.look(), self._last
        found = [f"{what}: {ns} ns off" for what, ns in seen["off"].items()]
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
        found += self._errors()
        self.defects += [f"after {event!r}: {what}" for what in found]
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

    def _errors(self) -> list[str]:
        """What the cluster's processes logged of failures of ours."""
        text = self.bed.log.read_text(errors="replace")
        new, self._logged = text[self._logged :], len(text)
        return [
            f"logged: {entry[:3_000]}"
            for entry in re.split(r"^(?=\d{4}-\d\d-\d\d |Traceback)", new, flags=re.MULTILINE)
            if OURS.search(entry) and INJECTED not in entry and "no window" not in entry
        ]

    def window(self, report: efficiency_report, times: Sequence[int], event: str) -> None:
        """Judge the report of the window in which an event came."""
        opened, inside, outside, closed = times
        stays = self.bed.client.run_on_scheduler(_look)["stays"]
        found = report.report

        def lived(start: int, stop: int) -> int:
            return sum(n * max(0, min(left or stop, stop) - max(joined, start)) for n, joined, left in stays)

        least, most, total = lived(inside, outside), lived(opened, closed), found.breakdown.total_ns
        if not least <= total <= most + found.breakdown.ns(Bucket.UNMEASURED):
            self.defects.append(
                f"after {event!r}: a report has {total / 1e9:.6f} thread-seconds; "
                f"expected {least / 1e9:.6f} to {most / 1e9:.6f}; {dict(found.breakdown)}"
            )
        for row in (found.by_prefix, found.by_worker):
            if any(ns < 0 for each in row.values() for ns in each.to_nanoseconds().values()):
                self.defects.append(f"after {event!r}: a negative time in {row}")


def chaos(seed: int, seconds: float, only: Sequence[str] = ()) -> list[str]:
    """Let things happen for so long; gives the defects."""
    rng, until, counts = random.Random(seed), time.monotonic() + seconds, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        bed = Bed(Path(folder))
        try:
            users = Users(bed, seed)
            judge = Judge(bed, users)
            with users.at_work():
                judge.step("the start")
                while time.monotonic() < until:
                    for name in rng.sample(sorted(only or EVENTS), len(only or EVENTS)):
                        if time.monotonic() >= until:
                            break
                        counts[name] += 1
                        print(f"{counts.total():4d} {name}", flush=True)
                        bed.rng = random.Random(f"{seed}/{counts.total()}")
                        _happen(bed, judge, name)
            judge.defects += users.defects
            _calm(bed, judge, users)
        finally:
            bed.close()
    grown = judge.rss[-1] - judge.rss[len(judge.rss) // 4]
    if grown > MAX_GROWTH:
        judge.defects.append(f"the scheduler's process grew by {grown / 2**20:.0f} MiB")
    print(f"\nseed {seed}; events: " + ", ".join(f"{name} {n}" for name, n in counts.most_common()))
    print(f"work that was right: {users.right.total()} ({dict(users.right)})")
    print("work done again: " + ("; ".join(f"{n} x {what}" for what, n in users.again.most_common()) or "none"))
    print("workers lost: " + ("; ".join(f"{n} x {why}" for why, n in judge.vanished.most_common()) or "none"))
    print(f"scheduler's memory: {[round(rss / 2**20) for rss in judge.rss]} MiB")
    for defect in judge.defects:
        print(f"DEFECT {defect}")
    print(f"{len(judge.defects)} defects")
    return judge.defects


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
            except Exception as error:
                judge.defects.append(f"in {name!r}: {type(error).__name__}: {error}")
            t1=time.monotonic_ns()
            bed.heal()
            times.append(time.monotonic_ns())
        times.append(time.monotonic_ns())
    print("TIMES", [round((b-a)/1e9,1) for a,b in zip([times[0],times[1],t1,times[2]],[times[1],t1,times[2],times[3]])])
    told = [str(one.message) for one in warned if issubclass(one.category, RuntimeWarning)]
    if name in ENDS_WINDOWS:
        if not told:
            judge.defects.append(f"after {name!r}: the report did not say that its window had ended")
        print(f"    {told}")
    elif told:
        judge.defects.append(f"after {name!r}: a report failed: {told}")
    else:
        judge.window(report, times, name)
    t1=time.monotonic_ns()
    judge.step(name)
    print("JUDGE", (time.monotonic_ns()-t1)/1e9)


def _calm(bed: Bed, judge: Judge, users: Users) -> None:
    """Let nothing happen any more: nobody is slow then."""
    bed.heal()
    rng = random.Random(0)

    def calm() -> bool:
        for name in ("numbers", "long_ones", "inside"):
            users.do(name, rng)
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
    """Drive the state machines through so many tasks, and see that no more is kept after all than after a tenth."""
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
            os._exit(sizes[-1] > MAX_KEPT_RATIO * sizes[0])  # its connections are gone

    run(driven)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what happens, and what is wrong; the exit status says whether anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--only", nargs="+", choices=EVENTS, default=[], metavar="EVENT")
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
