"""Worker processes, each with a network, a disk and limits of its own as far as the machine allows, and their faults.

For root, workers are in network namespaces that a bridge joins, and spill to a file system that writes through to its
device, so that the kernel can throttle the victim's link and its writes. Without these rights the workers are plain
processes, and ``network``, ``disk``, ``limit`` and ``neighbour`` cannot be injected; :func:`lacking` gives the reason.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster

from dask_efficiency.accounts.slow_worker import Cause


def sh(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def unlike_others() -> int:
    """A number for names and addresses, by which beds of several processes differ."""
    return os.getpid() % 200 + 20


def add_bridge(stack: ExitStack, name: str) -> None:
    sh("ip", "link", "add", name, "type", "bridge")
    stack.callback(sh, "ip", "link", "del", name)
    sh("ip", "link", "set", name, "up")


def add_cable(stack: ExitStack, name: str, *other_end: str) -> None:
    """Two cards that are joined, by the name of the one and what ``ip`` takes for the other."""
    sh("ip", "link", "add", name, "type", "veth", "peer", "name", *other_end)
    # Gone with its namespace, but only after a while: the next bed would find it.
    stack.callback(subprocess.run, ("ip", "link", "del", name), capture_output=True)


def add_host(stack: ExitStack, name: str, bridge: str, address: str) -> None:
    """A namespace whose card ``eth0`` has this address, on a cable of the namespace's name to a bridge."""
    sh("ip", "netns", "add", name)
    stack.callback(sh, "ip", "netns", "del", name)
    add_cable(stack, name, "eth0", "netns", name)
    sh("ip", "link", "set", name, "master", bridge, "up")
    sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    sh("ip", "-n", name, "link", "set", "eth0", "up")
    sh("ip", "-n", name, "link", "set", "lo", "up")


MEMORY_LIMIT = 600 * 2**20

#: Share of its memory that a worker's results may take before they are written to disk: 12 MB.
TARGET = 0.02

#: Of the victim: bits a second of its link, bytes a second of its writes.
LINK = "24mbit"
WRITES = 2_000_000

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(slots=True)
class Member:
    name: str
    process: subprocess.Popen[bytes]
    link: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid


@dataclass(slots=True)
class Bed:
    """A cluster whose workers can be given faults."""

    client: Client
    members: list[Member]
    addresses: dict[str, str]
    device: str

    def member(self, name: str) -> Member:
        return next(member for member in self.members if member.name == name)


def lacking() -> str:
    """Reason for which workers cannot have networks and disks of their own here; empty if they can."""
    if os.geteuid() != 0:
        return "that takes root"
    for program in ("ip", "tc", "mkfs.ext4", "mount"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not (CGROUPS / "blkio").is_dir() or not (CGROUPS / "cpu").is_dir():
        return "cgroups of version 1 are not mounted"
    return ""


#: Makes network namespaces, by the number of workers: the address of this one, and their names.
Network = Callable[[int], AbstractContextManager[tuple[str, list[str]]]]


@contextmanager
def bed(
    workers: int, *, threads: int = 1, isolated: bool | None = None, network: Network | None = None
) -> Iterator[Bed]:
    """A cluster of worker processes, isolated from each other where the machine allows."""
    isolated = not lacking() if isolated is None else isolated
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        host, device, links = "127.0.0.1", "", [""] * workers
        if isolated:
            device = stack.enter_context(_disk(place))
            host, links = stack.enter_context((network or one_bridge)(workers))
        cluster = stack.enter_context(
            LocalCluster(n_workers=0, host=host, scheduler_port=0, dashboard_address=None, silence_logs=50)
        )
        client = stack.enter_context(Client(cluster))
        members = []
        for i, link in enumerate(links):
            members.append(Member(str(i), _start(str(i), link, cluster.scheduler_address, place, threads), link))
            stack.callback(end_worker, members[-1].process)
        client.wait_for_workers(workers, timeout=300)
        infos = client.scheduler_info(n_workers=-1)["workers"]
        yield Bed(client, members, {str(info["name"]): address for address, info in infos.items()}, device)


def _start(name: str, link: str, scheduler: str, place: Path, threads: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dask", "worker", scheduler, "--name", name, "--no-nanny", "--no-dashboard"]
    command += ["--nthreads", str(threads), "--memory-limit", str(MEMORY_LIMIT), "--local-directory", str(place)]
    settings = {
        # Without it the first large messages of a process take three times as long as later ones.
        **{name: str(value) for name, value in dask.config.get("distributed.nanny.pre-spawn-environ").items()},
        "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": str(TARGET),
        "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
    }
    quiet = subprocess.DEVNULL
    inside = ["ip", "netns", "exec", link] if link else []
    return subprocess.Popen([*inside, *command], env={**os.environ, **settings}, stdout=quiet, stderr=quiet)


def end_worker(process: subprocess.Popen[bytes]) -> None:
    """End a worker's process, also one that is stopped."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)
        process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _disk(place: Path) -> Iterator[str]:
    """A file system at ``place`` that writes through to its device; the device's number."""
    memory = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    image = memory / f"dask-bed-{os.getpid()}.img"
    with image.open("wb") as file:
        file.truncate(2 * 2**30)
    try:
        sh("mkfs.ext4", "-q", "-O", "^has_journal", str(image))
        sh("mount", "-o", "loop,sync", str(image), str(place))
        try:
            stat = os.stat(place)
            yield f"{os.major(stat.st_dev)}:{os.minor(stat.st_dev)}"
        finally:
            sh("umount", "--lazy", str(place))
    finally:
        image.unlink()


@contextmanager
def one_bridge(workers: int) -> Iterator[tuple[str, list[str]]]:
    """Network namespaces on a bridge: the address of this one, and their names."""
    number = unlike_others()
    bridge, links = f"dbed{number}", [f"dbed{number}-{i}" for i in range(workers)]
    with ExitStack() as stack:
        add_bridge(stack, bridge)
        sh("ip", "addr", "add", f"10.213.{number}.1/24", "dev", bridge)
        for i, link in enumerate(links):
            add_host(stack, link, bridge, f"10.213.{number}.{i + 2}")
        yield f"10.213.{number}.1", links


# -- faults --------------------------------------------------------------------------------------


@contextmanager
def _stopped(bed: Bed, victim: str) -> Iterator[None]:
    """The process is stopped for 150 of 300 ms."""
    pid, over = bed.member(victim).pid, threading.Event()

    def turns() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            over.wait(0.15)
            os.kill(pid, signal.SIGCONT)
            over.wait(0.15)

    thread = threading.Thread(target=turns)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.kill(pid, signal.SIGCONT)


#: Uses a core for two thirds of the time.
_BURNER = """
import time
while True:
    until = time.monotonic() + 0.02
    while time.monotonic() < until: pass
    time.sleep(0.01)
"""


@contextmanager
def _burner() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", _BURNER])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@contextmanager
def cgroup(kind: str, name: str, settings: dict[str, str], pids: list[int]) -> Iterator[None]:
    """A control group of these processes for as long as the block takes."""
    group = CGROUPS / kind / f"dask-bed-{os.getpid()}-{name}"
    homes = [_home(kind, pid) for pid in pids]
    group.mkdir()
    try:
        for setting, value in settings.items():
            (group / setting).write_text(value)
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        try:
            yield
        finally:
            for pid, home in zip(pids, homes, strict=True):
                with suppress(OSError):
                    (home / "cgroup.procs").write_text(str(pid))
    finally:
        for _ in range(50):  # a process that was killed leaves after a while
            with suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.05)


def _home(kind: str, pid: int) -> Path:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    path = next(line.split(":", 2)[2] for line in lines if kind in line.split(":", 2)[1].split(","))
    return CGROUPS / kind / path.lstrip("/")


@contextmanager
def _limit(bed: Bed, victim: str) -> Iterator[None]:
    """The process has 0.3 cores, which a burner in its cgroup wants too."""
    with _burner() as burner:
        limits = {"cpu.cfs_period_us": "50000", "cpu.cfs_quota_us": "15000"}
        with cgroup("cpu", "limit", limits, [bed.member(victim).pid, burner]):
            yield


def pin(pid: int, cores: set[int]) -> None:
    """Keep all threads of a process on these cores."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(OSError):
            os.sched_setaffinity(int(thread), cores)


@contextmanager
def _neighbour(bed: Bed, victim: str) -> Iterator[None]:
    """The process is kept on one core, where a burner with more weight runs two thirds of the time."""
    pid, everywhere = bed.member(victim).pid, os.sched_getaffinity(0)
    core = {max(everywhere)}

    with _burner() as burner, cgroup("cpu", "neighbour", {"cpu.shares": "16384"}, [burner]):
        os.sched_setaffinity(burner, core)
        pin(pid, core)
        try:
            yield
        finally:
            pin(pid, everywhere)


def _hog(dask_worker: Any) -> None:
    dask_worker.bed_hogs = True

    def spin() -> None:
        while dask_worker.bed_hogs:
            until = time.monotonic() + 0.03
            while time.monotonic() < until:
                pass
            time.sleep(0.01)

    threading.Thread(target=spin, daemon=True).start()


def _hog_no_more(dask_worker: Any) -> None:
    dask_worker.bed_hogs = False


@contextmanager
def _run_on(bed: Bed, victim: str, begin: Callable[[Any], None], end: Callable[[Any], None]) -> Iterator[None]:
    only = [bed.addresses[victim]]
    bed.client.run(begin, workers=only)
    try:
        yield
    finally:
        bed.client.run(end, workers=only)


def _gil(bed: Bed, victim: str) -> AbstractContextManager[None]:
    """A thread of the process runs Python for 30 of 40 ms."""
    return _run_on(bed, victim, _hog, _hog_no_more)


def _ballast(dask_worker: Any) -> None:
    room = 0.84 * MEMORY_LIMIT - dask_worker.monitor.get_process_memory()
    dask_worker.bed_ballast = b"x" * max(0, int(room))


def _no_ballast(dask_worker: Any) -> None:
    dask_worker.bed_ballast = None


def _memory(bed: Bed, victim: str) -> AbstractContextManager[None]:
    """The process's memory is filled beyond the share at which Dask pauses it."""
    return _run_on(bed, victim, _ballast, _no_ballast)


@contextmanager
def _slow_disk(bed: Bed, victim: str) -> Iterator[None]:
    """The kernel throttles what the process writes to the disk where it spills."""
    limits = {"blkio.throttle.write_bps_device": f"{bed.device} {WRITES}"}
    with cgroup("blkio", "disk", limits, [bed.member(victim).pid]):
        yield


@contextmanager
def _slow_link(bed: Bed, victim: str) -> Iterator[None]:
    """A token bucket throttles what the process sends and receives."""
    link = bed.member(victim).link
    bucket = ("root", "tbf", "rate", LINK, "burst", "32kb", "latency", "400ms")
    sh("tc", "qdisc", "add", "dev", link, *bucket)
    sh("tc", "-n", link, "qdisc", "add", "dev", "eth0", *bucket)
    try:
        yield
    finally:
        sh("tc", "qdisc", "del", "dev", link, "root")
        sh("tc", "-n", link, "qdisc", "del", "dev", "eth0", "root")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that is injected into a worker, and its right cause."""

    cause: Cause
    inject: Callable[[Bed, str], AbstractContextManager[None]]
    needs_rights: bool = False


FAULTS = {
    "stopped": Fault(Cause.STOPPED, _stopped),
    "limit": Fault(Cause.CONTENTION, _limit, needs_rights=True),
    "neighbour": Fault(Cause.CONTENTION, _neighbour, needs_rights=True),
    "gil": Fault(Cause.GIL, _gil),
    "memory": Fault(Cause.MEMORY, _memory),
    "disk": Fault(Cause.DISK, _slow_disk, needs_rights=True),
    "network": Fault(Cause.NETWORK, _slow_link, needs_rights=True),
}
