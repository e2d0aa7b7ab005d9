"""`dask-efficiency mpi record`: the calls of an MPI program, recorded."""

from __future__ import annotations

from pathlib import Path

import click

from dask_efficiency.cli.output import one_line_errors, tell
from dask_efficiency.files.storage import followed


@click.command("record", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--mpicc", default="mpicc", show_default=True, metavar="COMMAND", help="The compiler of your MPI.")
@click.option(
    "--library",
    default="libmpi-tracer.so",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The library that records; all hosts must see it under this path.",
)
@click.option(
    "--save",
    default="mpi-trace",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Save the trace to this folder, in place of an earlier trace.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[MPIEXEC ...]")
def command(mpicc: str, library: Path, save: Path, command: tuple[str, ...]) -> None:
    """Record the calls of an MPI program, for `mpi simulate`.

    With a command such as `mpiexec -n 4 ./program`, this runs it and records it. Without one, this
    compiles the library that records, and prints how a job script uses it.
    """
    from dask_efficiency.mpi.tracer.build import compile_tracer, preloaded

    with one_line_errors():
        compiled, folder = Path(followed(library)), Path(followed(save))
        environment = preloaded(compiled, folder)
        compressed = compile_tracer(mpicc, compiled)
    tell(f"Compiled {library} with {mpicc}{'' if compressed else ', without zlib: traces are not compressed'}.")
    if command:
        _record(command, environment, folder)
        return
    assignments = [f"{name}={value}" for name, value in environment.items()]
    tell(f"Record with:    {' '.join(assignments)} mpiexec -n 4 ./program")
    tell(f"Simulate with:  dask-efficiency mpi simulate --cluster lab.yaml {folder}.txt")


def _record(command: tuple[str, ...], environment: dict[str, str], folder: Path) -> None:
    """Run a program, report the recording, and exit with its code."""
    import os
    import subprocess

    listed = Path(f"{folder}.txt")
    before = _written(listed)
    with one_line_errors():
        code = subprocess.run(command, env={**os.environ, **environment}, check=False).returncode
    if _written(listed) == before:
        raise click.ClickException(
            f"nothing was recorded: {command[0]} ended with {code}, and no rank called MPI_Init of a shared library of "
            "the MPI that the tracer was compiled with (--mpicc)"
        )
    tell(
        f"Recorded {len(listed.read_text().splitlines())} ranks in {folder}. "
        f"Simulate with:  dask-efficiency mpi simulate --cluster lab.yaml {listed}",
        err=True,
    )
    if code:
        raise SystemExit(code if code > 0 else 128 - code)


def _written(path: Path) -> int:
    """Time of last modification of a file, 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
