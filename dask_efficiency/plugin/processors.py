"""Processors of the host that this process may use, and what its control group's limits did to it."""

from __future__ import annotations

import os
import platform
import re
import time
from contextlib import suppress
from pathlib import Path

from dask_efficiency.accounts.processors import Processors, ProcessorTime

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_NAMESPACE = Path("/proc/self/ns/cgroup")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_STAT = Path("/proc/stat")
#: Columns of a row: user, nice, system, idle, iowait, irq, softirq, steal; later ones are part of the first two.
_TIMES, _NOT_COMPUTING = 8, (3, 4, 7)


def own_processors() -> Processors:
    """Processors of this process; all of the machine if the system does not tell."""
    quota, group = _least_limit(_own_cgroup("cpu"))
    affinity = _affinity()
    return Processors(
        machine=f"{platform.node()} {_text(_BOOT)}".strip()[:200],
        group=f"{_namespace()} {group}"[:500] if quota is not None else "",
        affinity=affinity,
        quota=quota,
        used=_used(affinity),
    )


def own_time() -> ProcessorTime | None:
    """Time of the processors of this process so far; None if the system does not tell."""
    return _used(_affinity())


def _affinity() -> int:
    try:
        allowed = os.sched_getaffinity(0)
    except (AttributeError, OSError):  # not on macOS and Windows
        return (1 << (os.cpu_count() or 1)) - 1
    return sum(1 << i for i in allowed)


def _used(affinity: int) -> ProcessorTime | None:
    """Times of these processors so far; None if the system does not give them for each."""
    rows = (line.split() for line in _text(_STAT).splitlines() if line.startswith("cpu"))
    times = {row[0]: [int(word) for word in row[1 : 1 + _TIMES]] for row in rows}
    own = [times.get(f"cpu{i}", []) for i in range(affinity.bit_length()) if affinity >> i & 1]
    if any(len(row) < _TIMES for row in own):
        return None
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    everything = sum(map(sum, own))
    computing = everything - sum(row[i] for row in own for i in _NOT_COMPUTING)
    return ProcessorTime(everything * tick, computing * tick, time.process_time_ns())


def _own_cgroup(controller: str) -> str:
    """Path of this process's control group: version 2, else that of a controller of version 1."""
    version_1 = ""
    for line in _text(_OWN_CGROUPS).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers and (_CGROUPS / "cgroup.controllers").exists():
            return path
        if controller in controllers.split(","):
            version_1 = f"{controller}{path}"
    return version_1


def _namespace() -> str:
    """Id that distinguishes two containers on one host, in which paths look the same."""
    try:
        return str(_NAMESPACE.stat().st_ino)
    except OSError:
        return ""


def _least_limit(path: str) -> tuple[float | None, str]:
    """Least CPU limit, in cores, of a control group and its ancestors, and the group that has it."""
    limits = ((_limit(group), str(group)) for group in _with_ancestors(path))
    return min(((limit, group) for limit, group in limits if limit is not None), default=(None, ""))


def _with_ancestors(path: str) -> list[Path]:
    """Folders of a control group and its ancestors; inside a container its own group is mounted as the root."""
    folder = _CGROUPS / path.lstrip("/")
    return [group for group in (folder, *folder.parents) if group.is_relative_to(_CGROUPS)]


def _limit(group: Path) -> float | None:
    """CPU limit of one control group in cores: one file in version 2, two in version 1."""
    words = _text(group / "cpu.max").split()
    quota, period = words if len(words) == 2 else [_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max", or not there
        return None
    return cores if cores > 0 else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def most_of_group() -> int | None:
    """The most memory that this process's control group ever had, in bytes; None if the system does not tell."""
    names = ("memory.peak", "memory.max_usage_in_bytes")  # version 2, and version 1
    for group in _with_ancestors(_own_cgroup("memory")):
        for name in names:
            if (text := _text(group / name)).isdecimal():
                return int(text)
    return None


def oom_counter() -> Path | None:
    """File that counts the processes of this one's control group that the kernel killed for memory; None without."""
    # Where a group has no memory controller, its ancestor's counts for it.
    names = ("memory.events", "memory.oom_control")  # version 2, and version 1
    files = (group / name for group in _with_ancestors(_own_cgroup("memory")) for name in names)
    return next((file for file in files if oom_kills(file) is not None), None)


def oom_kills(file: Path | str) -> int | None:
    """Processes that such a file has counted; None if it cannot be read."""
    found = re.search(r"^oom_kill (\d+)$", _text(Path(file)), re.MULTILINE)
    return None if found is None else int(found[1])


#: Bytes read of ``cpu.stat``; the first lines are the ones needed.
_MAX_BYTES = 2_048


class Throttling:
    """Reads how long threads were stopped because the CPU limit was used up.

    The kernel sums over the CPUs on which the control group was stopped, for all its processes: the wait of one thread
    is an estimate. Without a limit, nothing is read.
    """

    def __init__(self, group: Path | None) -> None:
        self._last, self._descriptor = 0, -1
        if group is not None:
            with suppress(OSError):  # a limit, and no statistics
                self._descriptor = os.open(group / "cpu.stat", os.O_RDONLY | os.O_CLOEXEC)
        self._last = self._read()

    @classmethod
    def own(cls) -> Throttling:
        """Throttling by the control group that limits this process most."""
        quota, group = _least_limit(_own_cgroup("cpu"))
        return cls(Path(group) if quota is not None else None)

    @property
    def limited(self) -> bool:
        """True if there is a limit with statistics."""
        return self._descriptor >= 0

    def more(self) -> int:
        """Nanoseconds since the last call. The kernel may take some time to add up; the GIL is free meanwhile."""
        now = self._read()
        more, self._last = max(0, now - self._last), now
        return more

    def close(self) -> None:
        """Read nothing any more."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _read(self) -> int:
        if self._descriptor < 0:
            return 0
        try:
            text = os.pread(self._descriptor, _MAX_BYTES, 0).decode(errors="replace")
        except OSError:
            return self._last
        words = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        if "throttled_usec" in words:  # version 2
            return int(words["throttled_usec"]) * 1_000
        return int(words.get("throttled_time", 0))  # version 1: nanoseconds
