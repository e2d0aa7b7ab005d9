"""Programs of MPI as time-independent traces, made by rules: a stencil, a master with workers, and a transposition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

BYTE = 6


def stencil(ranks: int, steps: int = 10, halo: int = 8_000) -> Iterator[str]:
    """Each rank exchanges with its neighbours, computes, and all agree on how far they are."""
    for rank in range(ranks):
        neighbours = [other for other in (rank - 1, rank + 1) if 0 <= other < ranks]
        yield f"{rank} init"
        for _ in range(steps):
            yield from (f"{rank} irecv {other} 0 {halo} {BYTE}" for other in neighbours)
            yield from (f"{rank} isend {other} 0 {halo} {BYTE}" for other in neighbours)
            yield f"{rank} waitall"
            yield f"{rank} compute {1_000_000 + 100_000 * (rank % 3)}"
            yield f"{rank} allreduce 1 10 0"
        yield f"{rank} finalize"


def master_worker(ranks: int, rounds: int = 5, nbytes: int = 100_000) -> Iterator[str]:
    """Rank 0 gives each of the others work in turn and takes its results."""
    work = Random(7)
    yield "0 init"
    for each in range(rounds):
        yield from (f"0 send {worker} {each} {nbytes} {BYTE}" for worker in range(1, ranks))
        yield from (f"0 recv {worker} {each} {nbytes // 10} {BYTE}" for worker in range(1, ranks))
    yield "0 finalize"
    for worker in range(1, ranks):
        yield f"{worker} init"
        for each in range(rounds):
            yield f"{worker} recv 0 {each} {nbytes} {BYTE}"
            yield f"{worker} compute {work.randint(500_000, 5_000_000)}"
            yield f"{worker} send 0 {each} {nbytes // 10} {BYTE}"
        yield f"{worker} finalize"


def transposition(ranks: int, steps: int = 3, nbytes: int = 20_000) -> Iterator[str]:
    """All ranks send a part of what they have to all others, as a Fourier transform does."""
    for rank in range(ranks):
        yield f"{rank} init"
        yield f"{rank} bcast {nbytes} 0 {BYTE}"
        for _ in range(steps):
            yield f"{rank} compute 2000000"
            yield f"{rank} alltoall {nbytes} {nbytes} {BYTE} {BYTE}"
        yield f"{rank} reduce {nbytes} 0 0 {BYTE}"
        yield f"{rank} finalize"


PROGRAMS: dict[str, Callable[[int], Iterator[str]]] = {
    "stencil": stencil,
    "master_worker": master_worker,
    "transposition": transposition,
}


def written(folder: Path, lines: Iterator[str] | str) -> Path:
    """A trace of all ranks in one file."""
    path = folder / "program.txt"
    path.write_text(lines if isinstance(lines, str) else "\n".join(lines) + "\n")
    return path
