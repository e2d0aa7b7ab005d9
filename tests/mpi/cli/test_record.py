import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dask_efficiency.cli import main
from dask_efficiency.mpi.trace_files import load_trace as from_mpi_trace
from tests.links import links_of_another_user

PROGRAM = Path(__file__).parents[1] / "tracer" / "programs" / "alone.c"

needs_mpi = pytest.mark.needs("mpicc")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["mpi", "record", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    return tmp_path


@pytest.fixture
def compiler(folder: Path) -> Path:
    """A compiler that makes an empty library: preloading it does nothing but make the loader complain."""
    path = folder / "mpicc"
    path.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n: > "$2"\n')
    path.chmod(0o755)
    return path


def test_the_command_prints_the_lines_for_a_job_script(folder: Path, compiler: Path) -> None:
    result = run("--mpicc", compiler, "--library", "t.so", "--save", "of-today")
    assert result.exit_code == 0, result.output
    assert f"LD_PRELOAD={folder}/t.so DASK_EFFICIENCY_MPI_TRACE={folder}/of-today mpiexec -n 4" in result.output
    assert f"mpi simulate --cluster lab.yaml {folder}/of-today.txt" in result.output
    assert (folder / "t.so").exists()


def test_without_a_compiler_the_error_is_one_line(folder: Path) -> None:
    result = run("--mpicc", "no-such-mpicc")
    assert result.exit_code == 1
    assert result.output.startswith("Error: there is no 'no-such-mpicc'; expected the compiler of your MPI")
    assert result.output.count("\n") == 1


def test_a_program_without_mpi_records_nothing_and_is_an_error(folder: Path, compiler: Path) -> None:
    result = run("--mpicc", compiler, "--", "true")
    assert result.exit_code == 1
    assert "nothing was recorded: true ended with 0" in result.output


def test_options_of_the_command_are_its_own(folder: Path, compiler: Path) -> None:
    (folder / "mpi-trace.txt").write_text("mpi-trace/rank-0.txt.gz\n")
    os.utime(folder / "mpi-trace.txt", (1, 1))
    script = (
        "import os, pathlib, sys; pathlib.Path(os.environ['DASK_EFFICIENCY_MPI_TRACE'] + '.txt').write_text('a\\nb\\n')"
    )
    result = run("--mpicc", compiler, sys.executable, "-c", f"{script}; sys.exit(3)", "--save", "no", "-n", 4)
    assert result.exit_code == 3
    assert f"Recorded 2 ranks in {folder}/mpi-trace." in result.output


@pytest.mark.parametrize("option", ["--save", "--library"])
def test_another_users_link_in_a_folder_of_all_is_named_and_not_followed(
    folder: Path, compiler: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "link").symlink_to(folder / "mine")
    links_of_another_user(monkeypatch)
    result = run("--mpicc", compiler, option, "shared/link")
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: '{shared}/link' is another user's link")
    assert result.output.count("\n") == 1
    assert not (folder / "mine").exists()


@needs_mpi
def test_a_recording_can_be_read(folder: Path) -> None:
    subprocess.run(["mpicc", "-w", str(PROGRAM), "-o", "alone"], check=True)
    result = run("./alone", "barriers", 3)
    assert result.exit_code == 0, result.output
    program = from_mpi_trace(folder / "mpi-trace.txt")
    assert (program.size, program.instructions_per_second) == (1, 1e9)
