"""Files that are read again and again: bytes that tasks read, far beyond the sizes of the files that they are of."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import HELD, Bucket, cause_name
from dask_efficiency.accounts.metered import AGAIN, FILES, KEPT_OPEN, ONCE, READ, SIZE
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.report.computing import READS, WORTH_AVOIDING, own_line, reads
from dask_efficiency.report.cures import with_recipe
from dask_efficiency.report.kinds import BESIDE, page_of
from dask_efficiency.report.made import asked_by
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import MeteredRow, ProfileRow
from dask_efficiency.show.figures import format_bytes, format_share, name_of
from dask_efficiency.show.finding import KNOWN, Finding

_READS_AGAIN = "reads-again"
#: Bytes read, as a multiple of the sizes of their files and beyond them, from which they are read again and again. By
#: judgement.
TIMES, BEYOND_BYTES = 3.0, 50_000_000
#: Part of the bytes that must be of files that were seen again where these mostly stayed open, as then any bytes of
#: files that are never seen would count as theirs. By judgement.
COVERED_KEPT_OPEN = 0.98
#: Share of a prefix's time from which its bytes may be of the network or of child processes. By judgement.
ELSEWHERE = 0.02
_ELSEWHERE = [cause_name(Bucket.THREAD_NONCPU, cause) for cause in ("network", "child-process")]
#: Share of all bytes from which a prefix reads; and of the time of such prefixes that must be in functions that read by
#: their names, for these to be all that read. By judgement.
NAMED = 0.1
_READS = re.compile(rf"{READS.pattern}|getitem")


@dataclass(frozen=True, slots=True)
class FilesRead:
    """Bytes that tasks read, and those of the files that were found open."""

    by_prefix: Counter[str]
    #: Sizes of the files; and bytes read with those open that were opened again, stayed open, or neither.
    sizes: float
    again: float
    kept_open: float
    once: float

    @property
    def times(self) -> float:
        """Times that the files were read; 0 if it is not known that they were read again and again.

        What was seen once stands for files that were never seen. At worst each byte of these was read once.
        """
        known, whole = self.again + self.kept_open, self.by_prefix.total()
        covered = known / (known + self.once) if known else 0.0
        if not self.sizes or (self.kept_open > self.again and covered < COVERED_KEPT_OPEN):
            return 0.0
        at_most = self.sizes + (1.0 - covered) * whole
        again = known >= TIMES * self.sizes and known - self.sizes >= BEYOND_BYTES and whole >= TIMES * at_most
        return whole * covered / self.sizes if again else 0.0


def files_read(rows: Iterable[MeteredRow]) -> FilesRead:
    """Add up what workers read; a file that several of them read is one, and is read again."""
    by_prefix: Counter[str] = Counter()
    sizes: defaultdict[str, float] = defaultdict(float)
    read: defaultdict[tuple[str, str], float] = defaultdict(float)
    workers: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        way, _, name = row.label.partition(" ") if row.context == FILES else ("", "", "")
        if way == SIZE:
            sizes[name] = max(sizes[name], row.value) if name != OTHER else sizes[name] + row.value
            workers[name].add(row.worker)
        elif way == READ:
            by_prefix[row.prefix] += round(row.value)
        else:
            read[way, name] += row.value
    ways: Counter[str] = Counter()
    for (way, name), nbytes in read.items():
        ways[AGAIN if name != OTHER and len(workers[name]) > 1 else way] += round(nbytes)
    return FilesRead(by_prefix, sum(sizes.values()), ways[AGAIN], ways[KEPT_OPEN], ways[ONCE])


def read_again(report: EfficiencyReport, exact: Iterable[ProfileRow]) -> Finding | None:
    """Finding of files that are read again and again, if reading is much of all thread time; without a saving."""
    read = files_read(report.metered)
    if not (times := read.times) or not report.thread_seconds:
        return None
    prefixes = {prefix for prefix, nbytes in read.by_prefix.items() if nbytes >= NAMED * read.by_prefix.total()}
    held = elsewhere = 0
    for prefix in prefixes & report.by_prefix.keys():
        held += report.by_prefix[prefix].ns(*HELD)
        elsewhere += sum(report.causes_by_prefix.get(prefix, {}).get(name, 0) for name in _ELSEWHERE)
    rows = [(row.stack, row.ns, row.cause) for row in exact if row.prefix in prefixes and row.stack]
    reading = [(stack, ns) for stack, ns, cause in rows if cause == "file" or reads(stack, by=_READS)]
    place = own_line(reading)
    if sum(ns for _, ns in reading) < NAMED * held:  # as in functions of C
        place = own_line((stack, ns) for stack, ns, _ in rows)
        reading = [(stack, ns) for stack, ns, _ in rows if own_line([(stack, ns)]) == place]
    share = min(sum(ns for _, ns in reading) / 1e9 / report.thread_seconds, 1.0)
    if share < WORTH_AVOIDING or elsewhere > ELSEWHERE * held:
        return None
    (prefix, _), *_ = read.by_prefix.most_common(1)
    place = place or f"tasks of {name_of(prefix)}{asked_by(report, prefix)}"
    what = f"{format_bytes(read.by_prefix.total())} of files of {format_bytes(read.sizes)}, {times:.0f} times"
    where = f"{what}, for {format_share(share)} of all thread time: {place}"
    evidence = {"times": times, "share_of_thread_time": share}
    evidence[KNOWN] = (1.0 - 1.0 / times) * share * report.thread_seconds / report.mean_threads
    # With less to read, less of it waits for cores, too, whoever has these.
    kind = BESIDE[_READS_AGAIN]
    found = Finding(_READS_AGAIN, kind.title, where, advice=kind.advice, page=page_of(_READS_AGAIN), evidence=evidence)
    return with_recipe(report, found, reading)
