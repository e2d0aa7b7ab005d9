"""Programs of a deployment, started and ended, and what some of them need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: Where our packages are, for processes that start elsewhere.
ROOT = Path(__file__).resolve().parents[2]

HOST = "127.0.0.1"


def python_path(*folders: Path) -> str:
    """PYTHONPATH with folders in front of our own and of what there was."""
    return os.pathsep.join([*map(str, folders), str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)


def eventually(condition: Callable[[], Any], *, seconds: float = 60, what: str = "it") -> Any:
    """Wait for what other processes do; gives the condition's value."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > until:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.02)
    return value


@contextmanager
def program(
    command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that writes to a log; ended with the block, and its output shown if the block fails."""
    settings = {**os.environ, "PYTHONPATH": python_path(), **(environment or {})}
    with log.open("wb") as file:
        # A group of its own, so that its children can be ended with it.
        started = subprocess.Popen(
            command, env=settings, cwd=log.parent, stdout=file, stderr=file, stdin=subprocess.DEVNULL, process_group=0
        )
    try:
        yield started
    except BaseException:
        print(f"{' '.join(command)}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
        raise
    finally:
        end(started)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program, by force if it does not go."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:  # its children
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def certificate(folder: Path) -> dict[str, str]:
    """A self-signed certificate, as the options of Dask's commands take it."""
    key, file = str(folder / "key.pem"), str(folder / "certificate.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", key, "-out", file], check=True, capture_output=True, timeout=60)
    return {"--tls-ca-file": file, "--tls-cert": file, "--tls-key": key}


def mpi_libraries(folder: Path) -> dict[str, str]:
    """Environment in which mpi4py finds MPICH: PyPI's mpi4py asks for `libmpi.so.12`, which Debian names otherwise."""
    for library in Path("/usr/lib").glob("*/libmpich.so.12"):
        link = folder / "libmpi.so.12"
        link.symlink_to(library)
        return {"LD_LIBRARY_PATH": os.pathsep.join([str(folder), os.environ.get("LD_LIBRARY_PATH", "")])}
    return {}
