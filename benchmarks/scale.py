"""Goal: the scheduler's half costs at most 2 % of a core with 1000 workers, and 15 % with 10,000.

A scrape of ``/metrics`` takes at most 20 ms, nothing of ours holds the event loop up for longer than 20 ms, not even a
report, of which all workers answer at once when it begins and when it ends; a poll of the watch for stragglers takes at
most 5 ms at the 99th percentile, and memory grows with workers and not with tasks.

``python -m benchmarks.scale`` runs a real scheduler with fake workers in its process, with the plugin and without, in
turns, each in a process of its own (:mod:`benchmarks.scale_run`). Heartbeats arrive at Dask's own cadence, a million
tasks of a thousand prefixes go through the scheduler, ``/metrics`` is scraped each 5 s, a page of the dashboard is
open, and one worker is a straggler; then comes a report. Time in which nobody works is
skipped, so a run takes as long as its work. All times are CPU times by the thread's own clock. ``--json FILE`` writes
all figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from distributed.scheduler import heartbeat_interval

from benchmarks.figures import figure

SIZES = (10, 100, 1_000, 10_000)

#: Least seconds of a run, and least heartbeats of each worker in it.
MIN_SECONDS = 120.0
MIN_HEARTBEATS = 6

#: Largest share of a core, in per cent, by the number of workers.
CLAIMED_PERCENT = {1_000: 2.0, 10_000: 15.0}
CLAIMED_METRICS_MS = 20.0
CLAIMED_PAUSE_MS = 20.0
CLAIMED_STRAGGLERS_MS = 5.0

#: Microseconds of CPU that metering costs a task on its worker, as ``benchmarks/overhead.py`` prints.
WORKER_US = 7.5

Run = dict[str, Any]


def run(**asked: Any) -> Run:
    """One run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale_run", json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[-1]} failed:\n{done.stderr}")
    found: Run = json.loads(done.stdout.splitlines()[-1])
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """The value that a share of the values are not above; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def percent(run: Run) -> float:
    """Per cent of a core that the plugin's calls took."""
    return 100 * float(run["own_cpu"]) / float(run["elapsed"])


def calls(runs: Sequence[Run], part: str) -> list[float]:
    """Milliseconds of all calls of a part."""
    return [ms for run in runs for ms in run["calls"].get(part, [])]


class Size:
    """The runs of one number of workers, with GPUs or without.

    Parameters
    ----------
    runs, pairs
        With the plugin, and without it.
    """

    def __init__(self, runs: Sequence[Run], pairs: Sequence[Run]) -> None:
        self.runs = runs
        self.pairs = pairs
        self.workers: int = runs[0]["workers"]
        self.gpu: bool = runs[0]["gpu"]

    def spread(self, figure: Callable[[Run], float]) -> tuple[float, float, float]:
        """Median, least and most of the runs."""
        values = [figure(run) for run in self.runs]
        return statistics.median(values), min(values), max(values)

    @property
    def percent(self) -> tuple[float, float, float]:
        """Per cent of a core that our calls take."""
        return self.spread(percent)

    @property
    def paired_percent(self) -> list[float]:
        """Per cent of a core that a run takes more with the plugin than without, pair by pair."""
        pairs = zip(self.runs, self.pairs, strict=True)
        return [100 * (ours["cpu"] - others["cpu"]) / ours["elapsed"] for ours, others in pairs]

    @property
    def memory_mb(self) -> float:
        """Megabytes of the plugin, in the median of the pairs."""
        pairs = zip(self.runs, self.pairs, strict=True)
        return statistics.median(ours["memory_mb"][-1][1] - others["memory_mb"][-1][1] for ours, others in pairs)

    @property
    def memory_of_task(self) -> float:
        """Bytes of the plugin that each task of the second half left behind, in the median of the pairs."""

        def grown(run: Run) -> float:
            (before, then), (after, now) = run["memory_mb"]
            return 1e6 * (now - then) / max(1, after - before)

        pairs = zip(self.runs, self.pairs, strict=True)
        return statistics.median(grown(ours) - grown(others) for ours, others in pairs)

    @property
    def task_us(self) -> float:
        return statistics.median(
            1e3 * sum(calls([run], "hook: transition")) / max(1, run["finished"]) for run in self.runs
        )

    def claims(self) -> dict[str, tuple[float | list[float], str, float | None]]:
        """Figure, unit, and what is claimed, by what it is of."""
        pause, part = max((run["longest_pause"] for run in self.runs), key=lambda pause: pause[0])
        scrape = quantile([ms for run in self.runs for ms in run["own_metrics_ms"]], 0.5)
        poll = quantile(calls(self.runs, "poll: stragglers"), 0.99)
        report = max(run["report"][f"{step}_longest_ms"] for run in self.runs for step in ("open", "close"))
        return {
            "a scrape of /metrics": (scrape, "ms", CLAIMED_METRICS_MS),
            f"the longest pause ({part})": (pause, "ms", CLAIMED_PAUSE_MS),
            "a report's pause": (report, "ms", CLAIMED_PAUSE_MS),
            "a poll for stragglers, 99th percentile": (poll, "ms", CLAIMED_STRAGGLERS_MS),
            "of a core": ([percent(run) for run in self.runs], "%", CLAIMED_PERCENT.get(self.workers)),
        }

    def say(self) -> None:
        median, least, most = self.percent
        paired = statistics.median(self.paired_percent)
        beats = statistics.median(run["heartbeats"] / run["elapsed"] for run in self.runs)
        whole, bare = (quantile([ms for run in of for ms in run["metrics_ms"]], 0.5) for of in (self.runs, self.pairs))
        collected = [max(run["gc_longest_ms"] for run in of) for of in (self.runs, self.pairs)]
        first = self.runs[0]
        print(f"\n{self.workers} workers {'with' if self.gpu else 'without'} GPUs, {len(self.runs)} runs")
        line("CPU of our calls", f"{median:.2f} % of a core ({least:.2f} to {most:.2f}); by pairs {paired:+.2f} %")
        self._say_parts()
        line("heartbeats", f"{beats:.1f} a second of {first['payload_bytes'] / 1e3:.1f} kB")
        own = f"{first['own_metrics_bytes'] / 1e3:.1f} kB of {first['metrics_bytes'] / 1e3:.1f} are ours"
        line("/metrics", f"{own}; an answer takes {whole:.1f} ms, and {bare:.1f} without the plugin")
        answer = quantile(first["live_answer_ms"], 0.5), first["live_answer_bytes"] / 1e3
        line("an answer to top", f"{answer[0]:.2f} ms, {answer[1]:.1f} kB")
        for step in ("open", "close"):
            cpu, pause = (max(run["report"][f"{step}_{of}"] for run in self.runs) for of in ("cpu", "longest_ms"))
            line(f"a report: {step}", f"{cpu:.2f} s of CPU, of which others wait for {pause:.1f} ms at a time")
        line("a report: the reply", f"{first['report']['reply_bytes'] / 1e6:.2f} MB")
        line("longest collection", f"{collected[0]:.1f} ms of garbage, and {collected[1]:.1f} without the plugin")
        of_worker = 1e3 * self.memory_mb / self.workers
        line("memory", f"{self.memory_mb:.1f} MB, {of_worker:.1f} kB a worker, {self.memory_of_task:.0f} bytes a task")
        line("a task's hooks", f"{self.task_us:.2f} us")
        line("a worker that joins", f"{1e3 * first['joining'] / self.workers:.2f} ms")
        line("stragglers found", f"{first['stragglers']}")
        apart = max(run["read_interval"] for run in self.runs)
        line("heartbeats read", f"each {apart:.1f} s of a worker at the end; {self._counts}")

    @property
    def _counts(self) -> str:
        return ", ".join(f"{name} {max(run[name] for run in self.runs)}" for name in ("refused", "stale", "missed"))

    def _say_parts(self) -> None:
        elapsed = sum(run["elapsed"] for run in self.runs)
        parts = {part: calls(self.runs, part) for part in {part for run in self.runs for part in run["calls"]}}
        for part, times in sorted(parts.items(), key=lambda each: -sum(each[1])):
            if times:
                print(
                    f"    {part:22}{sum(times) / elapsed / 10:8.3f} %   p50 {quantile(times, 0.5):8.3f}  "
                    f"p99 {quantile(times, 0.99):8.3f}  worst {max(times):8.3f} ms"
                )


def line(name: str, figures: str) -> None:
    print(f"  {name:24}{figures}")


def say_task_lengths(scheduler_us: float, worker_us: float) -> None:
    """Print what metering costs tasks of some lengths."""
    cost = scheduler_us + worker_us
    print(f"\nA task costs {scheduler_us:.1f} us on the scheduler and {worker_us:.1f} on its worker")
    for ms in (1, 10, 100):
        print(f"  of {ms:3} ms: {cost / ms / 10:.3f} % of its time")
    print(f"  below 0.1 % from {cost:.1f} ms on")


def measure(args: argparse.Namespace) -> list[Size]:
    """Run it for all sizes, with the plugin and without in turns."""
    sizes = []
    for workers in args.workers:
        seconds = args.seconds or max(MIN_SECONDS, MIN_HEARTBEATS * float(heartbeat_interval(workers)))
        asked = {
            "workers": workers,
            "tasks": args.tasks // len(args.workers),
            "prefixes": args.prefixes,
            "seconds": seconds,
        }
        kinds = {"both": (False, True), "no": (False,), "yes": (True,)}[args.gpus]
        runs: dict[bool | None, list[Run]] = {kind: [] for kind in (None, *kinds)}
        for _ in range(args.repeats):
            for kind, of in runs.items():
                of.append(run(**asked, plugin=kind is not None, gpu=bool(kind)))
        for kind in kinds:
            size = Size(runs[kind], runs[None])
            size.say()
            sys.stdout.flush()
            sizes.append(size)
    return sizes


def main() -> int:
    """Measure, print, and say whether the claims hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=SIZES)
    parser.add_argument("--tasks", type=int, default=1_000_000, help="of all sizes together (default: a million)")
    parser.add_argument("--prefixes", type=int, default=1_000)
    parser.add_argument(
        "--seconds", type=float, help="of each cluster's life (default: 120, and 6 heartbeats at least)"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gpus", choices=["both", "no", "yes"], default="both")
    parser.add_argument(
        "--worker-us", type=float, default=WORKER_US, help="that a task costs its worker (default: 7.5)"
    )
    parser.add_argument("--json", type=Path, help="file for all figures")
    args = parser.parse_args()
    sizes = measure(args)
    say_task_lengths(sizes[0].task_us, args.worker_us)
    if args.json:
        text = json.dumps([{"runs": size.runs, "pairs": size.pairs} for size in sizes])
        args.json.write_text(text, encoding="utf-8")
    holds = True
    print()
    for size in sizes:
        of = f"{size.workers:,} workers{' with GPUs' if size.gpu else ''}"
        for name, (value, unit, most) in size.claims().items():
            holds &= figure(f"{name}, {of}", value, unit, at_most=most)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
