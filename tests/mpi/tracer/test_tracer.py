import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dask_efficiency.mpi.trace_files import load_trace as from_mpi_trace
from dask_efficiency.mpi.tracer.build import compile_tracer
from tests.mpi.tracer.conftest import Compile, Record

#: What rank 0 of calls.c does with messages, and what rank 1 does where it is not the same the other way round.
MESSAGES = """
init
send 1 11 3 1
send 1 12 4 1
irecv 1 21 5 1
isend 1 21 5 1
waitall 2
irecv 1 22 2 1
irecv 1 23 1 1
send 1 23 1 1
wait 1 0 23
send 1 22 2 1
wait 1 0 22
irecv 1 24 1 1
issend 1 24 1 1
wait 1 0 24
wait 0 1 24
irecv 1 24 1 1
issend 1 24 1 1
waitall 2
irecv 1 25 6 1
isend 1 25 6 1
wait 1 0 25
wait 0 1 25
#comm SWAPPED 1 0
#comm AGAIN 1 0
barrier @AGAIN
send 1 31 1 1 @SWAPPED
#comm SAME 0 1
"""

#: Collectives of rank 0, all on a duplicate of the communicator of the world.
COLLECTIVES = """
bcast 48 1 6
gather 2 2 0 1 1
scatter 2 2 0 1 1
gatherv 0 1 2 0 1 1
scatterv 1 2 0 0 1 1
allgather 2 2 1 1
allgatherv 1 1 2 1 1
alltoall 2 2 1 1
alltoallv 3 1 2 2 1 1 1 1
reduce 3 0 0 1
allreduce 3 0 1
scan 3 0 1
exscan 3 0 1
reducescatter 1 2 0 1
reducescatter 2 2 0 1
bcast 1 0 1
allreduce 2 0 1
barrier
"""

#: Those of rank 1 that differ.
OTHER = {
    "gatherv": "gatherv 2 0 0 0 1 6",
    "scatterv": "scatterv 0 0 2 0 6 1",
    "allgatherv": "allgatherv 2 1 2 1 1",
    "alltoallv": "alltoallv 3 1 2 4 2 2 1 1",
}

#: After them. A buffered send is never waited for.
END = """
isend 1 41 3 1
irecv 1 41 3 1
wait 1 0 41
finalize
# not traced: MPI_Win_fence 2
# not traced: MPI_Put 1
# errors: MPI_Send 1
# as blocking where waited for: MPI_Ibcast 1
# as blocking where waited for: MPI_Iallreduce 1
"""


def actions_of(rank: int, lines: list[str]) -> list[str]:
    """A rank's lines without its number, without what it computes, and with words for the names of communicators."""
    names: dict[str, str] = {}
    for line in lines:
        if line.startswith("#comm"):
            names[line.split()[1]] = ("SWAPPED", "AGAIN", "SAME")[len(names)]
    found = []
    for line in lines[1:]:
        words = [names.get(word.removeprefix("@"), word) if "." in word else word for word in line.split()]
        words = [f"@{word}" if word in names.values() and words[0] != "#comm" else word for word in words]
        if words[1] != "compute":
            found.append(" ".join(words if line.startswith("#") else words[1:]))
    return found


def swapped(lines: list[str]) -> list[str]:
    found = []
    for line in lines:
        words = line.split()
        if words[0] == "wait":
            words[1:3] = words[2], words[1]
            words[1:3] = [str(1 - int(word)) for word in reversed(words[1:3])]
        elif "send" in words[0] or "recv" in words[0]:
            words[1] = "0"
        found.append(" ".join(words))
    return found


def test_each_call_has_its_line(record: Record, program: Compile, tmp_path: Path) -> None:
    ranks, ran = record(["mpiexec", "-n", 2, program("calls")])
    assert ran.returncode == 0, ran.stderr
    messages, end = MESSAGES.split("\n")[1:-1], END.split("\n")[1:-1]
    collectives = COLLECTIVES.split("\n")[1:-1]
    here = [f"{line} @SAME" for line in collectives]
    there = [f"{OTHER.get(line.split()[0], line)} @SAME" for line in collectives]
    assert actions_of(0, ranks[0]) == messages + here + end
    received = ["init", "recv 0 11 3 1", "irecv 0 12 4 1", "wait 0 1 12", *swapped(messages[3:])]
    received[received.index("send 0 31 1 1 @SWAPPED")] = "recv 0 31 1 1 @SWAPPED"
    assert actions_of(1, ranks[1]) == received + there + swapped(end)
    assert from_mpi_trace(tmp_path / "trace.txt").size == 2


def test_names_of_communicators_are_the_same_on_all_ranks_and_differ_between_communicators(
    record: Record, program: Compile
) -> None:
    ranks, _ = record(["mpiexec", "-n", 4, program("transposition")])
    groups = [{name: members for name, *members in _groups(lines)} for lines in ranks]
    assert [sorted(rank.values()) for rank in groups] == [
        [["0", "1"], ["0", "2"]],
        [["0", "1"], ["1", "3"]],
        [["0", "2"], ["2", "3"]],
        [["1", "3"], ["2", "3"]],
    ]
    everywhere = {name: members for rank in groups for name, members in rank.items()}
    assert len(everywhere) == 4
    assert all(rank[name] == everywhere[name] for rank in groups for name in rank)


def _groups(lines: list[str]) -> list[list[str]]:
    return [line.split()[1:] for line in lines if line.startswith("#comm")]


def test_computing_is_cpu_time(record: Record, program: Compile) -> None:
    (lines,), ran = record([program("alone"), "compute"])
    computed = [int(line.split()[2]) for line in lines if " compute " in line]
    # It sleeps as long as it computes, which is no work.
    assert max(computed) == pytest.approx(1e9 * float(ran.stdout.split()[0]), rel=0.02, abs=1e6)
    assert "instructions_per_second=1e9" in lines[0]


@pytest.fixture(scope="session")
def counting(mpicc: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tracer that counts nanoseconds as if they were instructions, and holds few calls in memory."""
    library = tmp_path_factory.mktemp("counting") / "tracer.so"
    flags = ["COUNTER_TYPE=PERF_TYPE_SOFTWARE", "COUNTER_CONFIG=PERF_COUNT_SW_TASK_CLOCK"]
    flags += ["MAX_RECORDS=64", "MIN_RECORDS=16"]
    compile_tracer(mpicc, library, ["-O0", *(f"-D{flag}" for flag in flags)])
    return library


def test_counted_instructions_have_the_speed_that_was_measured(
    record: Record, program: Compile, counting: Path, tmp_path: Path
) -> None:
    (lines,), ran = record([program("alone"), "compute"], counting)
    if "instructions_per_second" in lines[0]:
        pytest.skip("this machine lets no process count (perf_event_paranoid, or a container)")
    seconds = float(ran.stdout.split()[0])
    speed = from_mpi_trace(tmp_path / "trace.txt").instructions_per_second
    computed = max(int(line.split()[2]) for line in lines if " compute " in line)
    assert computed / speed == pytest.approx(seconds, rel=0.02, abs=1e-3)


def test_a_receive_that_waits_too_long_is_written_as_one_of_any(
    record: Record, program: Compile, counting: Path, tracer: Path, tmp_path: Path
) -> None:
    def shown(lines: list[str]) -> list[str]:
        return [line for line in lines if "compute" not in line and not line.startswith("#")]

    (lines,), _ = record([program("alone"), "wait", 200], counting)
    assert shown(lines) == [
        "0 init",
        "0 irecv -555 1 1 1",
        *["0 barrier"] * 200,
        "0 send 0 1 1 1",
        "0 wait -555 0 1",
        "0 finalize",
    ]
    assert from_mpi_trace(tmp_path / "trace.txt").size == 1
    (lines,), _ = record([program("alone"), "wait", 200], tracer)
    assert shown(lines)[1] == "0 irecv 0 1 1 1"


def test_one_thread_is_traced_and_the_calls_of_others_are_counted(
    record: Record, program: Compile, tmp_path: Path
) -> None:
    (lines,), ran = record([program("alone"), "threads"])
    assert ran.returncode == 0
    assert [line for line in lines[1:] if "compute" not in line] == [
        "0 init",
        "0 allreduce 1 0 1",
        "0 finalize",
        "# not traced: calls-of-other-threads 10",
    ]
    assert from_mpi_trace(tmp_path / "trace.txt").notes == (
        "calls that the trace does not have: calls-of-other-threads 10",
    )


def test_an_error_is_passed_on_and_counted_and_the_message_is_gone(record: Record, program: Compile) -> None:
    (lines,), ran = record([program("alone"), "truncate"])
    assert ran.stdout == "truncated\ndone\n"
    assert [line for line in lines[2:] if "compute" not in line] == [
        "0 isend 0 1 4 1",
        "0 recv 0 1 2 1",
        "0 wait 0 0 1",
        "0 finalize",
        "# errors: MPI_Recv 1",
    ]


def test_a_program_that_ends_without_finalize_leaves_its_calls(record: Record, program: Compile) -> None:
    (lines,), ran = record([program("alone"), "exit"])
    assert ran.returncode == 5
    assert lines[-1] == "0 barrier"


def test_a_file_that_may_not_grow_ends_the_trace_and_not_the_program(record: Record, program: Compile) -> None:
    (lines,), ran = record([program("alone"), "limited", 200_000])
    assert (ran.returncode, ran.stdout) == (0, "done\n")
    assert lines[-1] == "# stopped: File too large"
    assert ran.stderr.count("is not traced any more") == 1


#: As a full disk answers who writes a trace.
FULL = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
ssize_t write(int file, const void *data, size_t size)
{
    char name[64], path[4096] = "";
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    if (readlink(name, path, sizeof path - 1) > 0 && strstr(path, "/rank-")) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_write, file, data, size);
}
"""


def test_a_full_disk_ends_the_trace_and_not_the_program(
    record: Record, program: Compile, mpicc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full.c").write_text(FULL)
    full = tmp_path / "full.so"
    subprocess.run([mpicc, "-shared", "-fPIC", str(tmp_path / "full.c"), "-o", str(full)], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(full))
    _, ran = record([program("alone"), "exit"])
    assert ran.returncode == 5
    assert ran.stderr.count("No space left on device") == 1


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_the_target_of_a_link_in_the_place_of_a_file_is_left_alone(
    link: Callable[[Path, Path], None], record: Record, program: Compile, tmp_path: Path
) -> None:
    (tmp_path / "trace").mkdir()
    precious = tmp_path / "precious"
    precious.write_text("precious")
    places = [tmp_path / "trace" / "rank-0.txt", tmp_path / "trace" / "rank-0.txt.gz", tmp_path / "trace.txt"]
    for place in places:
        link(precious, place)
    _, ran = record([program("alone"), "exit"])
    assert (ran.returncode, ran.stderr) == (5, "")
    assert precious.read_text() == "precious"
    written = [place for place in places if not place.is_symlink() and place.stat().st_ino != precious.stat().st_ino]
    assert tmp_path / "trace.txt" in written
    assert len(written) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a link of another user's")
def test_a_folder_that_is_another_users_link_is_not_written_to(
    record: Record, program: Compile, tmp_path: Path
) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "trace").symlink_to(tmp_path / "precious")
    os.lchown(tmp_path / "trace", 12345, 12345)
    _, ran = record([program("alone"), "exit"])
    assert ran.returncode == 5
    assert "is not traced" in ran.stderr
    assert list((tmp_path / "precious").iterdir()) == []


def test_files_of_an_earlier_run_of_more_ranks_are_removed(record: Record, program: Compile) -> None:
    more, _ = record(["mpiexec", "-n", 3, program("alone")])
    fewer, _ = record(["mpiexec", "-n", 2, program("alone")])
    assert (len(more), len(fewer)) == (3, 2)


def test_a_program_without_mpi_is_left_alone(record: Record, tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    ranks, ran = record(["/bin/echo", "all is well"])
    assert (ran.stdout, ran.stderr, ranks) == ("all is well\n", "", [])
