"""CriticalPath: the use of every second of a run's wall clock, and the changes that would make it shorter."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int32, Int64, needs_pandas
from dask_efficiency.plugin.wings import offered
from dask_efficiency.runs.path.bounds import is_one_a_worker, is_uneven, longest_chain, slack_ns, useful_ns, work_ns
from dask_efficiency.runs.path.kinds import CODES, COMPUTE, KINDS, Kind, Segments
from dask_efficiency.runs.path.parts import PathPart, PathSummary, headline, worth_finding
from dask_efficiency.runs.path.relabel import loop_causes, name_without_workers, relabel, slots
from dask_efficiency.runs.path.scope import Question, Scope
from dask_efficiency.runs.path.walk import walk
from dask_efficiency.runs.replay.changes import Changes, Speedup, changes, replays, speedups
from dask_efficiency.runs.replay.replay import replay
from dask_efficiency.runs.trace.run_causes import RunCauses
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import values_at
from dask_efficiency.show.figures import format_seconds
from dask_efficiency.show.finding import Finding
from dask_efficiency.show.shown import Paged, late

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.runs.trace.events import Written

#: Groupings of segments.
GROUPS = ("kind", "prefix", "worker", "host")
#: Prefixes that a table of speed-ups tries, those with most time on the path; bounds the replays.
CANDIDATES = 10

#: By part that a replay can change: its kinds.
PARTS = {
    "transfer": (Kind.TRANSFER, Kind.TRANSFER_QUEUE),
    "spill": (Kind.SPILL, Kind.UNSPILL),
    "scheduler": (Kind.GRAPH_UPDATE, Kind.SCHEDULER_TRANSITION, Kind.SCHEDULER_TO_WORKER, Kind.REPORT),
}

#: Note of a path whose trace has profiles, without the wing that reads them.
NOT_EXPANDED = "profiles of tasks are not on the path: dask_efficiency.torch_traces is not installed"
#: Name of no task or no worker, as in the time of clients and of graphs.
NOBODY = "-"


# It has no slots, because cached properties need a ``__dict__``.
@dataclass(frozen=True, repr=False)
class CriticalPath(Paged):
    """The chain of events that a run's end waited for; its segments tile the makespan exactly.

    Parameters
    ----------
    trace
        The recorded run.
    question
        Target, span or window that the path explains.
    scope
        The interval of the run that answers it.
    segments
        In time order. The first begins where the scope does, each other where the one before it stops.
    causes
        Cause of each run of a task.
    notes
        Caveats of the path, in addition to the trace's own.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.runs.sections.path"

    trace: RunTrace
    question: Question
    scope: Scope
    segments: Segments
    causes: RunCauses
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, trace: RunTrace, question: Question) -> Self:
        """Find the path that answers a question about a run; raises as :func:`critical_path` does."""
        scope = question.scope(trace)
        causes = RunCauses(trace)
        walked, notes = _expanded(walk(trace, scope, causes), trace)
        segments = name_without_workers(relabel(walked, trace), trace, scope)
        return cls(trace, question, scope, segments, causes, notes)

    @property
    def makespan_seconds(self) -> float:
        """Wall clock from the client's first activity to the last result."""
        return (self.scope.stop - self.scope.start) / 1e9

    @property
    def unattributed(self) -> float:
        """Share of the makespan that nothing recorded explains, in [0, 1]."""
        return self.seconds("kind").get(Kind.UNATTRIBUTED, 0.0) / self.makespan_seconds if len(self.segments) else 0.0

    def seconds(self, by: str = "kind") -> dict[str, float]:
        """Seconds of the makespan by kind, prefix, worker or host; largest first. Their sum is the makespan.

        Time that belongs to no task, or to no worker, is under :data:`NOBODY`.

        Raises
        ------
        ValueError
            If ``by`` is none of :data:`GROUPS`.
        """
        if by not in GROUPS:
            raise ValueError(f"by is {by!r}; expected one of {', '.join(GROUPS)}")
        return self.seconds_of(KINDS, by)

    def seconds_of(self, kinds: Collection[Kind], by: str) -> dict[str, float]:
        """Seconds of the makespan that some kinds take, by kind, prefix, worker or host; largest first."""
        among = np.isin(self.segments.kind, [CODES[kind] for kind in kinds])
        position, names = self._grouped(by)
        added = np.zeros(len(names) + 1, np.int64)
        np.add.at(added, position[among], (self.segments.stop - self.segments.start)[among])
        by_name: Counter[str] = Counter()
        for name, ns in zip([*names, NOBODY], added.tolist(), strict=True):
            by_name[name] += ns
        return {name: ns / 1e9 for name, ns in sorted(by_name.items(), key=lambda item: (-item[1], item[0])) if ns}

    def _grouped(self, by: str) -> tuple[Int64, list[str]]:
        """Find the position of each segment's group in the list of names; -1 where it is in none."""
        trace, segments = self.trace, self.segments
        if by == "kind":
            return segments.kind.astype(np.int64), [str(kind) for kind in KINDS]
        if by == "prefix":
            return values_at(trace.tasks.prefix, segments.task), list(trace.prefixes)
        names = [worker.name if by == "worker" else worker.host for worker in trace.workers]
        return segments.worker.astype(np.int64), names

    def summary(self) -> pd.Series[float]:
        """Share of the makespan by kind, in (0, 1]; largest first. Needs pandas."""
        return self._series("kind") / self.makespan_seconds if len(self.segments) else self._series("kind")

    def by_prefix(self) -> pd.Series[float]:
        """Seconds of the makespan by task prefix, largest first. Needs pandas."""
        return self._series("prefix")

    def by_worker(self) -> pd.Series[float]:
        """Seconds of the makespan by worker, largest first. Needs pandas."""
        return self._series("worker")

    def by_host(self) -> pd.Series[float]:
        """Seconds of the makespan by host, largest first. Needs pandas."""
        return self._series("host")

    def _series(self, by: str) -> pd.Series[float]:
        with needs_pandas():
            import pandas as pd

        series: pd.Series[float] = pd.Series(self.seconds(by), dtype=float, name="seconds")
        return series.rename_axis(by)

    def breakdown(self) -> pd.DataFrame:
        """The segments in time order. Needs pandas.

        Returns
        -------
        DataFrame
            Columns ``kind``, ``start``, ``stop`` (integer nanoseconds since the epoch, on the scheduler's clock),
            ``duration_seconds``, ``key``, ``prefix``, ``worker``, ``host``; missing where a segment has none.
        """
        with needs_pandas():
            import pandas as pd

        segments, keys = self.segments, self.trace.keys
        frame = pd.DataFrame({"kind": [str(KINDS[i]) for i in segments.kind.tolist()]})
        frame["start"], frame["stop"] = segments.start, segments.stop
        frame["duration_seconds"] = (segments.stop - segments.start) / 1e9
        named: dict[str, tuple[Int32 | Int64, Sequence[str]]] = {"key": (segments.task, keys)}
        named |= {by: self._grouped(by) for by in ("prefix", "worker", "host")}
        for column, (positions, names) in named.items():
            frame[column] = [names[i] if i != MISSING else None for i in positions.tolist()]
        return frame

    @cached_property
    def _work(self) -> tuple[Int64, Int64]:
        return work_ns(self.trace, self.scope)

    @cached_property
    def loop_causes(self) -> dict[str, float]:
        """Seconds of ``worker-loop`` by :data:`~dask_efficiency.runs.trace.schema.BLOCKED_BY`, largest first."""
        return loop_causes(self.segments, self.trace)

    @property
    def floor_seconds(self) -> float:
        """Seconds that the longest chain of tasks computes: no cluster, however large, is faster with these tasks."""
        return self._chain[0] / 1e9

    @property
    def longest_task_seconds(self) -> float:
        """Seconds of the longest task on that chain; if it is most of the chain, a single task takes long."""
        task = self._chain[1]
        return int(self._work[0][task]) / 1e9 if task != MISSING else 0.0

    @cached_property
    def _chain(self) -> tuple[int, int]:
        return longest_chain(self.trace, *self._work)

    @cached_property
    def chain_seconds(self) -> float:
        """Useful seconds on the longest chain of tasks that need one another: CPU and GPU, without any waiting."""
        return longest_chain(self.trace, *useful_ns(self.trace, self.scope))[0] / 1e9

    @property
    def slots(self) -> float:
        """Mean number of slots while there was any worker."""
        return slots(self.trace, self.scope)

    @property
    def slot_bound_seconds(self) -> float:
        """Seconds of the run if all slots compute all the time: work divided by :attr:`slots`; infinite without any."""
        work, slots = float(self._work[0].sum()) / 1e9, self.slots
        return work / slots if slots else float("inf") if work else 0.0

    @cached_property
    def run_slack_ns(self) -> Int64:
        """Slack of each run of the trace, by :func:`~dask_efficiency.runs.path.bounds.slack_ns`."""
        return slack_ns(self.trace, self.causes, self.scope)

    def slack(self) -> pd.Series[float]:
        """Seconds that each task could have ended later without delaying the end, all else unchanged. Needs pandas.

        Returns
        -------
        Series
            By key, at least 0, and 0 on the path. Tasks that did not end in the scope are left out. For a task that
            ran more than once, it is the smallest.
        """
        with needs_pandas():
            import pandas as pd

        runs, keys = self.trace.runs, list(self.trace.keys)
        rows = np.flatnonzero((self.run_slack_ns != MISSING) & (runs.task != MISSING))
        slack = pd.Series(self.run_slack_ns[rows] / 1e9, name="slack").groupby(runs.task[rows]).min()
        slack.index = pd.Index([keys[task] for task in slack.index], name="key")
        return slack

    @property
    def headline(self) -> str:
        """One line: the makespan and the largest part of the path; at most 100 characters, without a full stop."""
        return headline(self._parts, format_seconds(self.makespan_seconds), "the critical path")

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Parts of the makespan, the largest share first, with what the run could save at most without each."""
        return worth_finding(self._parts, self.makespan_seconds)

    @cached_property
    def _parts(self) -> list[PathPart]:
        parts: list[PathPart] = late("dask_efficiency.runs.path.findings:parts")(self) if self.makespan_seconds else []
        return parts

    @property
    def is_one_a_worker(self) -> bool:
        """True if each worker runs one task of the longest task's prefix, as in training."""
        return is_one_a_worker(self.trace, self._work[0])

    @property
    def is_uneven(self) -> bool:
        """True if the longest task took several times the median of its prefix."""
        return is_uneven(self.trace, self._work[0])

    def to_summary(self, own_threads: Collection[str] = ()) -> PathSummary:
        """Summarise for a report; tasks of ``own_threads`` also compute in threads that are not in traces."""
        longest = next(iter(self.seconds_computing()), "")
        return PathSummary(
            headline=self.headline,
            makespan_seconds=self.makespan_seconds,
            seconds_by_kind=self.seconds("kind"),
            floor_seconds=self.floor_seconds,
            longest_task_seconds=self.longest_task_seconds,
            divisible=longest not in own_threads and not self.is_one_a_worker,
            chain_seconds=self.chain_seconds,
        )

    def seconds_computing(self) -> dict[str, float]:
        """Seconds of the makespan in which tasks computed, by prefix; largest first."""
        return self.seconds_of(COMPUTE, "prefix")

    def what_if(
        self, *, speed_up: Mapping[str, float] | None = None, without: Collection[str] = (), repair: Iterable[str] = ()
    ) -> Self:
        """Find the path of the same run with changes.

        All times are computed again from their causes, the slots and the queue: the answer is the path of another run,
        not this one with parts left out. It is an estimate, and its trace's notes say that it is a replay.

        Parameters
        ----------
        speed_up
            Prefix to speed of its tasks' computing; 2.0 is half the time, 0.5 is twice the time.
        without
            Parts that take no time: ``transfer`` (moving results between workers), ``spill`` (disk, both ways),
            ``scheduler`` (messages to and from it, and its own time).
        repair
            Names of workers whose tasks take as long as tasks of the same prefix on the other workers, by the medians.

        Raises
        ------
        UnknownNameError
            If a prefix or worker is not in the trace, or a part is none of those.
        ValueError
            If a speed-up is not a positive number.
        """
        again = replay(self.trace, changes(self.trace, speed_up, without, repair), self.causes)
        return type(self).of(again, self._question_of_a_replay())

    def speedups(self, percent: float = 10.0) -> pd.DataFrame:
        """Tabulate the savings of an improvement by some percent, by replays. Needs pandas.

        Parameters
        ----------
        percent
            Reduction of the time of each prefix's computing, transfers, the disk and the scheduler; in (0, 100].

        Returns
        -------
        DataFrame
            By ``what``, a prefix or one of :data:`PARTS` in parentheses, the most helpful first: ``saved_seconds`` of
            the makespan; ``error_seconds``, the standard error of that over several replays (NaN for a large trace,
            which is replayed once); and ``saved``, the share of the makespan. Of the prefixes, only those
            :data:`CANDIDATES` are tried that take longest on the path. A saving that is not clearly above its error
            may be none at all: a faster part can also put tasks into a worse order.

        Raises
        ------
        ValueError
            If percent is out of range.
        """
        with needs_pandas():
            import pandas as pd

        frame = pd.DataFrame(self.improvements(percent), columns=["what", "saved_seconds", "error_seconds"])
        frame = frame.set_index("what").astype(float)
        frame["saved"] = frame["saved_seconds"] / self.makespan_seconds if self.makespan_seconds else 0.0
        return frame

    def improvements(self, percent: float = 10.0) -> list[Speedup]:
        """List the rows of :meth:`speedups`."""
        if not 0 < percent <= 100:
            raise ValueError(f"percent is {percent!r}; expected more than 0 and at most 100")
        factor, kinds = 1.0 - percent / 100, self.seconds("kind")
        prefixes = [name for name in self.seconds_computing() if name in self.trace.prefixes][:CANDIDATES]
        parts = [name for name, members in PARTS.items() if any(kind in kinds for kind in members)]
        tried = {name: Changes(prefixes={name: factor}) for name in prefixes}
        tried |= {f"({name})": Changes(parts={name: factor}) for name in parts}
        question = self._question_of_a_replay()

        def makespan(changed: Changes) -> float:
            scope = question.scope(replay(self.trace, changed, self.causes))
            return (scope.stop - scope.start) / 1e9

        return speedups(makespan, tried, replays(len(self.trace.runs)))

    def to_chrome(
        self, path: str | os.PathLike[str], *, only_critical: bool = False, **storage_options: Any
    ) -> Written:
        """Write the trace, with this path on top, for ui.perfetto.dev or chrome://tracing.

        Parameters
        ----------
        path, only_critical, **storage_options
            As of :meth:`.RunTrace.to_chrome`.
        """
        from dask_efficiency.runs.trace.chrome import PathSlice, save_chrome

        rows = self.segments.rows()
        slices = [PathSlice(str(KINDS[kind]), start, stop, run) for kind, start, stop, _, run, _, _ in rows]
        return save_chrome(self.trace, path, critical=slices, only_critical=only_critical, **storage_options)

    def _question_of_a_replay(self) -> Question:
        if self.question.window is None:
            return self.question
        # A replay has other times, so the window is replaced by the task that ended it.
        run = self.scope.run
        task = int(self.trace.runs.task[run]) if run != MISSING else MISSING
        return Question(target=self.trace.keys[task]) if task != MISSING else Question()


def critical_path(
    trace: RunTrace, *, target: str | None = None, span: str | None = None, window: tuple[int, int] | None = None
) -> CriticalPath:
    """Find the critical path: the use of every second of a run's wall clock.

    From the end backwards, each event leads to the one that let it happen last: a task's end to its start, its
    start to the input, the slot or the message that came last, and so on, to the client's first activity.

    Parameters
    ----------
    trace
        A recorded run, or a replayed one.
    target
        Explain only the end of the task with this key.
    span
        Explain only the end of this span's last task.
    window
        Explain only the time between two instants, in nanoseconds since the epoch on the scheduler's clock.

    Returns
    -------
    CriticalPath
        Its segments tile the makespan exactly.

    Raises
    ------
    EmptyTraceError
        If no task ended in what was asked for.
    UnknownNameError
        If there is no such task or span.
    ValueError
        If more than one of the restrictions is given, or the window does not end after its start.
    """
    return CriticalPath.of(trace, Question(target, span, window))


def _expanded(segments: Segments, trace: RunTrace) -> tuple[Segments, tuple[str, ...]]:
    """Replace profiled tasks by the segments of their profiles; returns notes, too."""
    if not trace.profiles:
        return segments, ()
    expand = offered("expander/torch")
    if expand is None:
        return segments, (NOT_EXPANDED,)
    expanded: tuple[Segments, tuple[str, ...]] = expand(segments, trace)
    return expanded
