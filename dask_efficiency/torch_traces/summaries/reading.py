"""Summaries of files: each read once, large ones in several processes, so that memory is that of a trace in each.

A process is an interpreter of its own that runs this module: multiprocessing's would import the user's script again.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from dask_efficiency.files.processes import command
from dask_efficiency.show.progress import Report, hidden, progress
from dask_efficiency.torch_traces.kineto.load import KinetoFile, reading
from dask_efficiency.torch_traces.summaries.rank import RankSummary, rank_summary

#: Bytes of files from which several processes are worth their start, which takes half a second each.
MANY_BYTES = 4 << 20

#: Bytes of the files that one process reads, one after another: starts are a small share then.
BYTES_OF_PROCESS = 16 << 20


def summaries_of(files: Sequence[KinetoFile]) -> list[RankSummary]:
    """Read and summarise files, in the order of their ranks."""
    sizes = [file.nbytes for file in files]
    whole = sum(filter(None, sizes))
    parallel = whole >= MANY_BYTES and len(files) > 1 and _cores() > 1
    with progress(reading(files), unit="MB", of=whole / 1e6 if all(sizes) else None) as report:
        found = _in_processes(files, report) if parallel else _one_by_one(files, report)
    return sorted(found, key=lambda summary: summary.rank)


def _one_by_one(files: Sequence[KinetoFile], report: Report) -> list[RankSummary]:
    found: list[RankSummary] = []
    before = 0
    for file in files:
        reached = before
        found += map(rank_summary, file.read(lambda read: report((reached + read) / 1e6)))  # noqa: B023
        before += file.nbytes or 0
    return found


def _in_processes(files: Sequence[KinetoFile], report: Report) -> list[RankSummary]:
    """Summaries in any order; the first error of a file ends all processes."""
    found: list[RankSummary] = []
    done, running = 0, set[subprocess.Popen[bytes]]()
    pool = ThreadPoolExecutor(_cores())
    try:
        asked = {pool.submit(_ask, batch, running): batch for batch in _batches(files)}
        for answer in as_completed(asked):
            found += answer.result()
            done += sum(file.nbytes or 0 for file in asked[answer])
            report(done / 1e6)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in tuple(running):
            process.kill()
    return found


def _batches(files: Sequence[KinetoFile]) -> list[list[KinetoFile]]:
    batches: list[list[KinetoFile]] = []
    nbytes = BYTES_OF_PROCESS
    for file in files:
        if nbytes + (file.nbytes or 0) > BYTES_OF_PROCESS:
            batches.append([])
            nbytes = 0
        batches[-1].append(file)
        nbytes += file.nbytes or 0
    return batches


def _ask(files: list[KinetoFile], running: set[subprocess.Popen[bytes]]) -> list[RankSummary]:
    """Have a process of its own summarise files."""
    with subprocess.Popen(command(__name__), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        running.add(process)
        try:
            answered, _ = process.communicate(pickle.dumps(files))
        finally:
            running.discard(process)
    if process.returncode:
        raise OSError(
            f"the process that read {files[0].shown} ended with code {process.returncode}: was there enough memory?"
        )
    found: list[RankSummary] | Exception = pickle.loads(answered)  # of our own process
    if isinstance(found, Exception):
        raise found
    return found


def main() -> None:
    """Read the names of files from the standard input, and write their summaries, or an error, to the output."""
    output, sys.stdout = sys.stdout.buffer, sys.stderr
    found: list[RankSummary] | Exception
    try:
        with hidden():
            found = _one_by_one(pickle.load(sys.stdin.buffer), lambda done, **_: None)
    except (OSError, ValueError, ImportError) as error:
        found = error
    output.write(pickle.dumps(found))
    output.flush()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
