"""Which files were read again: known answers of what looks find open."""

from __future__ import annotations

import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import IO

import pytest

from dask_efficiency.accounts.metered import AGAIN, FILES, KEPT_OPEN, ONCE, READ, SIZE
from dask_efficiency.accounts.rows import MAX_APART as MAX_FILES
from dask_efficiency.accounts.rows import MAX_NAMED, OTHER
from dask_efficiency.plugin.thread_clocks import HeldReader
from dask_efficiency.plugin.worker.file_reads import (
    LOOKS_OPEN,
    MIN_INTERVAL_NS,
    FileLooks,
    FileReads,
    FileWindows,
    OpenFile,
)

MB = 1_000_000
TENTH = 100_000_000


def looked(looks: Sequence[Sequence[OpenFile]], *, nbytes: int = MB, prefixes: Sequence[str] = ("load",)) -> FileReads:
    """Looks a tenth of a second apart, with so many bytes read before each."""
    reads = FileReads()
    for found in looks:
        reads.add(nbytes, TENTH, prefixes, found)
    return reads


def named(name: str, *, fd: int = 7, nbytes: int = MB, position: int = 0) -> OpenFile:
    return OpenFile(fd, name, nbytes, position)


def bytes_of(reads: FileReads) -> dict[str, int]:
    """Bytes by label, without those by prefix."""
    return {each.label: n for each, n in reads.totals().items() if n and each.label != READ}


def ways(reads: FileReads) -> dict[str, int]:
    """Bytes by the way in which their files were seen."""
    found = dict.fromkeys((AGAIN, KEPT_OPEN, ONCE), 0)
    for label, n in bytes_of(reads).items():
        found[label.partition(" ")[0]] += n
    return found


def test_files_that_are_read_in_turn_twice_are_read_again_and_those_of_one_turn_are_not() -> None:
    turn = [[named(f"day-{i}")] for i in range(15)]
    assert ways(looked(turn)) == {AGAIN: 0, KEPT_OPEN: 0, ONCE: 15 * MB}
    twice = looked([*turn, *turn])
    assert ways(twice) == {AGAIN: 30 * MB, KEPT_OPEN: 0, ONCE: 0}
    assert sum(twice.sizes().values()) == 15 * MB


def test_a_thousand_files_that_are_read_once_are_never_read_again() -> None:
    reads = looked([[named(f"file-{i}")] for i in range(1_000)])
    assert ways(reads) == {AGAIN: 0, KEPT_OPEN: 0, ONCE: MAX_FILES * MB + (1_000 - MAX_FILES) * MB}
    assert len(reads.sizes()) == MAX_NAMED + 1
    assert len(reads.totals()) <= MAX_NAMED + 2


def test_a_file_that_goes_back_or_has_another_descriptor_is_opened_again_and_one_that_goes_on_is_not() -> None:
    assert ways(looked([[named("one", position=5)], [named("one", position=2)]]))[AGAIN] == 2 * MB
    assert ways(looked([[named("one", position=5)], [named("one", position=9)]]))[ONCE] == 2 * MB
    assert ways(looked([[named("one", position=5)], [], [named("one", position=9)]]))[AGAIN] == 2 * MB
    assert ways(looked([[named("one", fd=7)], [named("one", fd=8)]]))[AGAIN] == 2 * MB


def test_a_copy_of_a_descriptor_is_no_opening() -> None:
    both = [named("one", fd=7, position=5), named("one", fd=8, position=5)]
    for looks in ([both], [both[:1], both], [both, both[1:]]):
        assert ways(looked(looks)) == {AGAIN: 0, KEPT_OPEN: 0, ONCE: len(looks) * MB}


def test_a_file_that_is_open_at_each_look_is_kept_open() -> None:
    assert ways(looked([[named("cached")]] * LOOKS_OPEN)) == {AGAIN: 0, KEPT_OPEN: LOOKS_OPEN * MB, ONCE: 0}


def test_bytes_are_divided_by_size_and_what_is_read_too_fast_for_a_file_is_of_others() -> None:
    """In a tenth of a second one thread reads a file five times at most, and two do ten times."""
    found = [named("large", fd=7, nbytes=9 * MB), named("small", fd=8)]
    assert bytes_of(looked([found], nbytes=10 * MB)) == {f"{ONCE} large": 9 * MB, f"{ONCE} small": MB}
    assert bytes_of(looked([[named("small")]], nbytes=12 * MB)) == {f"{ONCE} small": 5 * MB, f"{ONCE} {OTHER}": 7 * MB}
    both = looked([[named("small")]], nbytes=12 * MB, prefixes=("load", "mean"))
    assert bytes_of(both) == {f"{ONCE} small": 10 * MB, f"{ONCE} {OTHER}": 2 * MB}


def test_all_bytes_are_of_the_prefixes_that_ran_also_where_no_file_is_open() -> None:
    reads = looked([[named("one")], []], nbytes=3, prefixes=("load", "mean"))
    by_prefix = {each.prefix: n for each, n in reads.totals().items() if each.label == READ}
    assert sum(by_prefix.values()) == 6
    assert by_prefix.keys() == {"load", "mean"}
    assert {each.context for each in reads.totals()} == {FILES}
    assert [each.label for each in reads.sizes()] == [f"{SIZE} one"]


def test_a_window_has_what_was_read_in_it_however_it_was_read_before() -> None:
    windows = FileWindows()
    windows.open_window("long")
    windows.add(5 * MB, TENTH, ["load"], [named("one", nbytes=5 * MB)])
    windows.open_window("short")
    windows.add(0, TENTH, ["load"], [])
    windows.add(MB, TENTH, ["load"], [named("one", nbytes=5 * MB)])
    short, long = windows.close_window("short"), windows.close_window("long")
    assert {each.label: n for each, n in short.items()} == {READ: MB, f"{ONCE} one": MB, f"{SIZE} one": 5 * MB}
    assert {each.label: n for each, n in long.items()} == {READ: 6 * MB, f"{AGAIN} one": 6 * MB, f"{SIZE} one": 5 * MB}
    assert windows.close_window("long") == {}


def test_the_name_of_a_file_is_equal_in_all_processes_of_a_host_and_no_hash_of_its_path(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(123_457))  # as no other file that this process may have open
    found = []
    for _ in range(2):
        with looks_at(FileReads(), tmp_path / "local") as looks, path.open("rb"):
            found += [one.identity for one in looks._open_files()[""] if one.nbytes == 123_457]
    first, second = found
    assert first == second or not Path("/proc/sys/kernel/random/boot_id").exists()
    plain = f"{platform.node()}/{path.stat().st_dev}{path}".encode()
    assert first != blake2b(plain, digest_size=8).hexdigest()


def test_what_is_added_as_it_begins_anew_is_of_before() -> None:
    reads = FileReads()

    def found() -> Iterator[OpenFile]:
        reads.begin()
        yield named("one")

    reads.add(MB, TENTH, ["load"], found())
    assert not reads.sizes()
    assert not bytes_of(reads)


@contextmanager
def looks_at(reads: FileReads, local: Path) -> Iterator[FileLooks]:
    with (
        closing(HeldReader()) as reader,
        closing(FileLooks(reader, threading.get_native_id(), str(local), reads.add)) as it,
    ):
        yield it


def read_in_a_thread(file: IO[bytes]) -> None:
    """What the thread that looks reads itself does not count."""
    thread = threading.Thread(target=file.read)
    thread.start()
    thread.join()


def find_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(4 * MB))
    reads = FileReads()
    with looks_at(reads, tmp_path / "local") as looks, open(tmp_path / "log", "ab") as log, path.open("rb") as file:
        log.write(b"written")
        log.flush()
        looks.look(10 * MIN_INTERVAL_NS, lambda: ["load"])  # begins
        looks.look(12 * MIN_INTERVAL_NS, lambda: ["load"])
        assert not reads.sizes()  # nothing was read
        read_in_a_thread(file)
        looks.look(14 * MIN_INTERVAL_NS, lambda: ["load"])
    # others that this process may have open are small
    assert sum(reads.sizes().values()) == pytest.approx(4 * MB, rel=0.1)
    (found,) = (n for each, n in reads.totals().items() if each.label == READ)
    assert found == pytest.approx(4 * MB, rel=0.01)


def leave_out_what_is_of_dask_or_was_long_ago(tmp_path: Path) -> None:
    reads = FileReads()
    for name in ("spilled", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_bytes(bytes(4 * MB))
    with looks_at(reads, tmp_path / "spilled") as looks:
        with open(tmp_path / "spilled" / "data", "rb") as spilled, open(tmp_path / "data" / "data", "rb") as file:
            looks.look(10 * MIN_INTERVAL_NS, lambda: ["load"])
            read_in_a_thread(spilled)
            looks.look(12 * MIN_INTERVAL_NS, lambda: ["load"])
            read_in_a_thread(file)
        looks.look(1_000 * MIN_INTERVAL_NS, lambda: ["load"])
    assert not bytes_of(reads)
    assert not reads.sizes()


def look_for_one_worker_of_two(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(4 * MB))
    first, second = FileReads(), FileReads()
    with looks_at(first, tmp_path / "a") as one, looks_at(second, tmp_path / "b") as other, path.open("rb") as file:
        for at in (10, 12):
            for looks in (one, other):
                looks.look(at * MIN_INTERVAL_NS, lambda: ["load"])
            read_in_a_thread(file)
        for looks in (one, other):
            looks.look(14 * MIN_INTERVAL_NS, lambda: ["load"])
    assert first.sizes()
    assert not second.sizes()


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="/proc/self/io is not there: nobody counts")
@pytest.mark.parametrize(
    "function", [find_what_was_read, leave_out_what_is_of_dask_or_was_long_ago, look_for_one_worker_of_two]
)
def test_looks_of_a_process(tmp_path: Path, function: Callable[[Path], None]) -> None:
    """One of its own, as all that a process reads and imports counts."""
    name = function.__name__
    code = f"from pathlib import Path; from {__name__} import {name}; {name}(Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
