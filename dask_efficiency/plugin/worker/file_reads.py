"""FileReads: bytes that a worker's tasks read from files, by file, as far as looks find it open.

The kernel counts what a process reads, and not from where. So what was read between two looks is taken for read from
the files that are open for reading at the second one. A file that is closed by then is missed; if it is read again, it
is seen another time. So files that were seen once stand for those that were missed, as in A. Turing's and I. J. Good's
estimate of what a sample has not met, with the bytes that were read around them.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from time import thread_time_ns
from typing import NamedTuple

from dask_efficiency.accounts.metered import AGAIN, BYTES, FILES, KEPT_OPEN, ONCE, READ, SIZE, Metered
from dask_efficiency.accounts.rows import MAX_APART, MAX_NAMED, OTHER, add, in_proportion
from dask_efficiency.plugin.thread_clocks import HeldReader
from dask_efficiency.plugin.worker.window_details import begin_window

#: Bytes from which a look is worth it: below are the samplers' own, and a program's small change. By judgement.
MIN_BYTES = 1_000_000
#: Nanoseconds between two looks at least; a tenth of those after which it is not known what ran. By judgement.
MIN_INTERVAL_NS = 100_000_000
#: Share of a core that these looks may take, of what the sampler may.
MAX_SHARE = 0.001
#: Looks from which a file that was never seen closed is one that stays open, as in a cache. By judgement.
LOOKS_OPEN = 10
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class OpenFile(NamedTuple):
    """File that is open for reading."""

    descriptor: int
    #: Made of its path and machine, and no guess of a path can be tried on it elsewhere: two names of one file are two,
    #: as they are to whoever reads them.
    identity: str
    nbytes: int
    position: int


#: As :meth:`FileReads.add`.
Add = Callable[[int, int, Sequence[str], Sequence[OpenFile]], object]


class _File:
    """Size of a file, and what was read while it was open."""

    def __init__(self) -> None:
        self.nbytes = self.read = self.openings = self.looks = 0
        #: Number of the last look that saw it, and its position there by descriptor.
        self.seen, self.positions = 0, dict[int, int]()

    def see(self, same: Sequence[OpenFile], look: int) -> None:
        """Count it as opened again if no descriptor of the look before is there, or one has gone back.

        More descriptors at once may be copies of one, as ``numpy.fromfile`` makes one to read.
        """
        former = self.positions if self.seen == look - 1 else {}
        self.positions = {one.descriptor: one.position for one in same}
        went_on = [self.positions[each] >= former[each] for each in self.positions.keys() & former.keys()]
        self.openings += not went_on or not all(went_on)
        self.seen, self.looks, self.nbytes = look, self.looks + 1, max(self.nbytes, same[0].nbytes)

    def label(self, name: str) -> str:
        way = AGAIN if self.openings > 1 else KEPT_OPEN if self.looks >= LOOKS_OPEN else ONCE
        return f"{way} {name}"


class _Read:
    """Bytes and files that were read since the beginning."""

    def __init__(self) -> None:
        self.files: dict[str, _File] = {}
        self.by_prefix: Counter[str] = Counter()
        self.looks = self.of_others = 0


class FileReads:
    """Adds up what was read by file and by prefix, from when a window was opened while none was."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin anew, also while another thread adds."""
        self._read = _Read()

    def add(self, nbytes: int, elapsed: int, prefixes: Sequence[str], found: Iterable[OpenFile]) -> None:
        """Add bytes that tasks of these prefixes read in so many nanoseconds, with the files that are open by then."""
        read = self._read
        read.looks += 1
        for prefix, part in zip(prefixes, in_proportion([1] * len(prefixes), nbytes), strict=True):
            read.by_prefix[prefix] += part
        opened: dict[str, list[OpenFile]] = {}
        for one in found:
            opened.setdefault(one.identity, []).append(one)
        # By judgement, a thread reads a file five times between two looks at most: what is read faster is of others.
        times = max(1, 5 * len(prefixes) * elapsed // MIN_INTERVAL_NS)
        parts = in_proportion([same[0].nbytes for same in opened.values()], nbytes) if opened else ()
        for (identity, same), part in zip(opened.items(), parts, strict=True):
            most = 0
            if identity in read.files or len(read.files) < MAX_APART:
                file = read.files.setdefault(identity, _File())
                file.see(same, read.looks)
                most = min(part, times * file.nbytes)
                file.read += most
            read.of_others += part - most

    def totals(self) -> dict[Metered, int]:
        """Bytes by prefix, and by file and the way in which it was seen."""
        found = {Metered(FILES, "", prefix, READ, BYTES): n for prefix, n in self._read.by_prefix.copy().items()}
        for name, file in self._named():
            add(found, {Metered(FILES, "", "", file.label(name), BYTES): file.read})
        add(found, {Metered(FILES, "", "", f"{ONCE} {OTHER}", BYTES): self._read.of_others})
        return found

    def sizes(self) -> dict[Metered, int]:
        """Sizes of the files that were seen."""
        found: dict[Metered, int] = {}
        for name, file in self._named():
            add(found, {Metered(FILES, "", "", f"{SIZE} {name}", BYTES): file.nbytes})
        return found

    def _named(self) -> list[tuple[str, _File]]:
        """Files; the first ones by names of their own, as the others must not change theirs."""
        files = self._read.files.copy().items()
        return [(identity if i < MAX_NAMED else OTHER, file) for i, (identity, file) in enumerate(files)]


class FileWindows:
    """Reads of each open window, which knows files from its own looks alone."""

    def __init__(self) -> None:
        self._windows: dict[str, FileReads] = {}

    def open_window(self, window: str) -> None:
        """Begin a window, or begin it anew."""
        begin_window(self._windows, window, FileReads())

    def close_window(self, window: str) -> dict[Metered, int]:
        """Bytes and sizes since the opening; empty if no such window is open."""
        reads = self._windows.pop(window, None) or FileReads()
        return {metered: nbytes for metered, nbytes in (reads.totals() | reads.sizes()).items() if nbytes}

    def add(self, nbytes: int, elapsed: int, prefixes: Sequence[str], found: Sequence[OpenFile]) -> None:
        """Add to each window, as :meth:`FileReads.add`; called in the thread that looks."""
        for reads in list(self._windows.values()):
            reads.add(nbytes, elapsed, prefixes, found)


#: Held by the one worker of a process that looks, for all of them.
_LOOKING = threading.Lock()


def _forked() -> None:
    global _LOOKING
    _LOOKING = threading.Lock()  # that of the parent may be held for ever


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class FileLooks:
    """Looks at the files that this process has open, made in the thread that looks; OSError if the system hides them.

    What the event loop's thread reads is Dask's own: messages, and results that were spilled.
    """

    def __init__(self, reader: HeldReader, loop_native_id: int, local_directory: str, add: Add) -> None:
        self._reader, self._add = reader, add
        self._salt = _salt()
        self._of_dask = os.path.join(os.path.realpath(local_directory), "")
        libraries = (os.path.join(prefix, "") for prefix in {sys.prefix, sys.base_prefix})
        #: Starts of paths that are of no user's data.
        self._not_data = (self._of_dask, "/proc/", "/sys/", *libraries)
        #: The instant from which bytes are added up, with these bytes and the number of modules then.
        self._since, self._interval = (0, 0, 0), MIN_INTERVAL_NS
        self._looking: threading.Lock | None = None
        self._counters: list[int] = []
        try:
            for of in ("", f"task/{loop_native_id}/", f"task/{threading.get_native_id()}/"):
                self._counters.append(os.open(f"/proc/self/{of}io", os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Look no more."""
        for descriptor in self._counters:
            os.close(descriptor)
        self._counters = []
        if self._looking is not None:
            self._looking.release()

    def look(self, at: int, running: Callable[[], Sequence[str]]) -> None:
        """Look, if enough was read; ``running`` gives the prefix of each thread's task.

        What is read during imports, or with files of Dask's own open, is left out.
        """
        then, before, modules = self._since
        if at - then < self._interval:
            return
        if self._looking is None:
            if not (lock := _LOOKING).acquire(blocking=False):
                return
            self._looking = lock
        read, elapsed = self._bytes_read(), at - then
        known = elapsed <= max(10 * MIN_INTERVAL_NS, 2 * self._interval) and len(sys.modules) == modules
        if known and read - before < MIN_BYTES:
            return
        self._since = at, read, len(sys.modules)
        if known and (prefixes := running()):
            began = thread_time_ns()
            found = self._open_files()
            if self._of_dask not in found:
                self._add(read - before, elapsed, prefixes, found.get("", ()))
            self._interval = max(MIN_INTERVAL_NS, round((thread_time_ns() - began) / MAX_SHARE))

    def _bytes_read(self) -> int:
        """Bytes that calls such as read(2) gave to this process, without those of the event loop and this thread."""
        texts = [self._reader.read(each) or b"rchar: 0" for each in self._counters]  # empty once the thread has ended
        process, *others = (int(text.split(maxsplit=2)[1]) for text in texts)
        return process - sum(others)

    def _open_files(self) -> dict[str, list[OpenFile]]:
        """Files that are open for reading only, by the start of their path if they are no data, or else under ""."""
        found: dict[str, list[OpenFile]] = {}
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):  # it is closed by now
                of = os.fstat(descriptor)
                if not stat.S_ISREG(of.st_mode) or not of.st_size:
                    continue
                with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
                    _, position, _, flags, *_ = file.read(100).split()
                if int(flags, 8) & os.O_ACCMODE == os.O_RDONLY:
                    path = os.readlink(f"/proc/self/fd/{descriptor}")
                    start = next((start for start in self._not_data if path.startswith(start)), "")
                    name = f"{platform.node()}/{of.st_dev}{path}".encode(errors="replace")
                    identity = blake2b(name, digest_size=8, key=self._salt).hexdigest()
                    found.setdefault(start, []).append(OpenFile(descriptor, identity, of.st_size, int(position)))
        return found


def _salt() -> bytes:
    """A number that the processes of this host share until it boots anew; one of this process if there is none."""
    try:
        return _BOOT.read_bytes()[:64] or os.urandom(16)
    except OSError:
        return os.urandom(16)
