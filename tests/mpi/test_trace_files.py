import gzip
from pathlib import Path

import pytest

from dask_efficiency.mpi.program import MpiTraceError, Op
from dask_efficiency.mpi.trace_files import load_trace as from_mpi_trace
from tests.mpi.programs import written

PAIR = "0 init\n1 init\n"


def split(folder: Path, compressed: bool = False) -> Path:
    for rank in range(2):
        content = f"{rank} init\n\n{rank} compute 5\n{rank} barrier\n{rank} finalize\n".encode()
        (folder / f"rank-{rank}.txt").write_bytes(gzip.compress(content) if compressed else content)
    path = folder / "trace"
    path.write_text("# a list\nrank-0.txt\nrank-1.txt\n")
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_a_list_and_a_folder_of_files_are_equal_to_one_file(compressed: bool, tmp_path: Path) -> None:
    lines = (f"{rank} {action}" for action in ("init", "compute 5", "barrier") for rank in range(2))
    one = from_mpi_trace(written(tmp_path, lines))
    (tmp_path / "split").mkdir()
    listed = from_mpi_trace(split(tmp_path / "split", compressed))
    assert one.calls == listed.calls
    assert [list(actions.ops) for actions in one.ranks] == [list(actions.ops) for actions in listed.ranks]
    (tmp_path / "split" / "trace").unlink()
    assert [len(actions) for actions in from_mpi_trace(tmp_path / "split").ranks] == [2, 2]
    assert listed.where(1, 0).endswith("rank-1.txt, line 3")


def test_names_are_read_as_all_releases_write_them(tmp_path: Path) -> None:
    text = PAIR.replace("init", "init 1") + "".join(
        f"p{rank} {action}\n"
        for action in ("allReduce 5 0", "reduceScatter 1 2 0", "allToAll 3 3", "barrier", "comm_size 2", "bcast 1")
        for rank in range(2)
    )
    text += "0 Isend 1 0 4\n0 waitAll\n1 Irecv 0 0 -1\n1 wait 0 1 0\n"
    program = from_mpi_trace(written(tmp_path, text))
    names = ["allreduce", "reduce_scatter", "alltoall", "barrier", "bcast"]
    assert [call.call.name for call in program.calls] == names
    # Counts are of doubles where the line of init says something.
    assert program.calls[0].call.sizes == (40,)
    assert list(program.ranks[0].ops)[-2:] == [Op.ISEND, Op.WAITALL]
    assert program.ranks[0].nbytes[-2] == 32


def test_counts_are_of_elements_of_their_datatypes(tmp_path: Path) -> None:
    text = PAIR + "0 send 1 0 1e3 1\n1 recv 0 0 1e3 3\n"
    program = from_mpi_trace(written(tmp_path, text))
    assert (program.ranks[0].nbytes[0], program.ranks[1].nbytes[0]) == (4000, 2000)


def test_sizes_that_only_some_ranks_know_are_put_together(tmp_path: Path) -> None:
    lines = [
        "0 gatherv 10 10 20 0 6 6",
        "1 gatherv 20 0 0 0 6 6",
        "0 alltoallv 9 1 2 9 1 3 6 6",
        "1 alltoallv 9 3 4 9 2 4 6 6",
        "0 scatterv 5 6 5 0 6 6",
        "1 scatterv 0 0 6 0 6 6",
    ]
    program = from_mpi_trace(written(tmp_path, PAIR + "\n".join(lines)))
    assert [call.call.sizes for call in program.calls] == [(10, 20), (1, 2, 3, 4), (5, 6)]


def test_the_speed_is_read_from_the_first_line(tmp_path: Path) -> None:
    text = "# dask-efficiency mpi trace 1 instructions_per_second=2.5e9 communicators\n0 init\n"
    assert from_mpi_trace(written(tmp_path, text)).instructions_per_second == 2.5e9


def test_notes_have_a_tracers_counts_and_why_it_stopped(tmp_path: Path) -> None:
    comments = [
        "# not traced: MPI_Put 12 MPI_Get 3",
        "# not traced: MPI_Put 1",
        "# errors: MPI_Recv 2",
        "# as blocking where waited for: MPI_Ibcast 1",
        "# stopped: no space left",
        "# anything else: is a comment",
    ]
    notes = from_mpi_trace(written(tmp_path, "0 init\n" + "\n".join(comments))).notes
    assert notes == (
        "calls that the trace does not have: MPI_Put 13, MPI_Get 3",
        "calls that returned an error: MPI_Recv 2",
        "collectives that did not block, taken as blocking where they were waited for: MPI_Ibcast 1",
        "program.txt stops before its rank did: no space left",
    )


def test_messages_to_no_process_are_none(tmp_path: Path) -> None:
    program = from_mpi_trace(written(tmp_path, f"{PAIR}0 isend -333 1 8 6\n0 wait -333 -333 -3335\n"))
    assert [len(actions) for actions in program.ranks] == [0, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 jump 3", r"program.txt, line 3: expected an action of MPI such as send, wait or allreduce, got 'jump'"),
        ("0 send 5 0 100", r"line 3: expected a rank below 2, got '5'"),
        ("0 send 1 0", r"line 3: send: expected more than 2 numbers"),
        ("0 send 1 0 many", r"line 3: expected a number, got 'many'"),
        ("0 send 1 0 1.5", r"line 3: expected a whole number, got '1.5'"),
        ("0 send 1 0 -4", r"line 3: expected a number of elements of at least 0, got '-4'"),
        ("0 send 1 0 4 99", r"line 3: expected the number of a datatype, -1 to 59, got '99'"),
        ("0 compute -1", r"line 3: expected an amount of at least 0, got '-1'"),
        ("0 compute nan", r"line 3: expected a finite number, got 'nan'"),
        ("0 bcast 8 2", r"line 3: bcast: expected a root below 2, got 2"),
        ("0 recv -333 1 4", r"line 3: .* MPI_ANY_SOURCE and for MPI_PROC_NULL alike"),
        ("0 send 1 99999999999 4", r"line 3: .*int"),
        ("0 barrier @half", r"line 3: expected a communicator that a '#comm' line above names, got 'half'"),
        ("hello", r"line 3: expected a rank and an action such as '0 send 1 0 100', got 'hello'"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(MpiTraceError, match=message):
        from_mpi_trace(written(tmp_path, f"{PAIR}{line}\n"))


def test_a_rank_without_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MpiTraceError, match="expected rank 1, as there are 2 up to 2"):
        from_mpi_trace(written(tmp_path, "0 init\n2 init\n"))
    path = split(tmp_path)
    path.write_text("rank-0.txt\nrank-7.txt\n")
    with pytest.raises(MpiTraceError, match=r"trace, line 2: expected a rank's file, and there is no 'rank-7.txt'"):
        from_mpi_trace(path)
    path.write_text("rank-0.txt\nrank-0.txt\n")
    assert from_mpi_trace(path).size == 1
    path.write_text("# nothing\n")
    with pytest.raises(MpiTraceError, match="expected actions, or files with the actions of a rank each; it is empty"):
        from_mpi_trace(path)


def test_ranks_that_disagree_about_a_collective_are_named(tmp_path: Path) -> None:
    text = PAIR + "0 barrier\n1 bcast 8 1\n0 bcast 8 1\n1 barrier\n"
    message = r"line 4: rank 1 calls bcast from root 1 where rank 0 calls barrier \(.*line 3\); ranks must agree"
    with pytest.raises(MpiTraceError, match=message):
        from_mpi_trace(written(tmp_path, text))
    with pytest.raises(MpiTraceError, match=r"line 5: rank 0 calls 2 collectives or more, and rank 1 .* calls 1"):
        from_mpi_trace(written(tmp_path, PAIR + "0 barrier\n1 barrier\n0 barrier\n"))


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "program.txt"
    path.write_bytes(b"\x1f\x8b broken")
    with pytest.raises(MpiTraceError, match="expected text, also compressed by gzip"):
        from_mpi_trace(path)
