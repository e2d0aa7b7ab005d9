"""The tracer and the programs that it records, compiled once."""

import gzip
import os
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from dask_efficiency.mpi.tracer.build import compile_tracer, preloaded

PROGRAMS = Path(__file__).with_name("programs")

#: Lines of each rank, without what it computes, and what the program wrote.
Recorded = tuple[list[list[str]], subprocess.CompletedProcess[str]]
#: Runs a command with the tracer.
Record = Callable[..., Recorded]
#: Compiles a program of the folder.
Compile = Callable[[str], Path]


@pytest.fixture(scope="session")
def mpicc() -> str:
    return "mpicc"


@pytest.fixture(scope="session")
def tracer(mpicc: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("tracer") / "tracer.so"
    compile_tracer(mpicc, library, ["-Wall", "-Wextra", "-Werror"])
    return library


@pytest.fixture(scope="session")
def program(mpicc: str, tmp_path_factory: pytest.TempPathFactory) -> Compile:
    folder = tmp_path_factory.mktemp("programs")

    @cache
    def compiled(name: str) -> Path:
        subprocess.run([mpicc, "-O1", "-w", str(PROGRAMS / f"{name}.c"), "-o", str(folder / name)], check=True)
        return folder / name

    return compiled


@pytest.fixture
def record(tracer: Path, tmp_path: Path) -> Record:
    def recorded(command: Sequence[object], library: Path = tracer) -> Recorded:
        folder = tmp_path / "trace"
        environment = {**os.environ, **preloaded(library, folder)}
        ran = subprocess.run(
            [str(word) for word in command], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        ranks = sorted(folder.iterdir(), key=lambda path: int(path.name.split(".")[0].removeprefix("rank-")))
        return [lines_of(path) for path in ranks if path.is_file()], ran

    return recorded


def lines_of(path: Path) -> list[str]:
    """The lines of a rank; of an uncompressed one too."""
    read = gzip.open if path.suffix == ".gz" else open
    with read(path, "rt") as lines:
        return [str(line).strip() for line in lines]
