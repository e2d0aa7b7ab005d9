"""Records what a real MPICH sends for many collective calls.

``python -m tests.mpi.collectives.recorder.record`` writes `RECORDED`. It needs ``mpicc`` and ``mpirun`` of
MPICH 4.0.2 built with the device ch4:ucx, as Debian 12 has it, and one host: MPICH itself makes several nodes of it.
"""

import gzip
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from dask_efficiency.mpi.collectives.call import SIZES, Collective
from tests.mpi.collectives.recorder.recorded import RECORDED, Recorded

HERE = Path(__file__).parent

#: By collective, the values of ``MPIR_CVAR_<collective>_INTRA_ALGORITHM`` in the order of ``src/mpi/coll/cvars.txt``.
VALUES = {
    "allgather": ("auto", "brucks", "nb", "recursive_doubling", "ring"),
    "allgatherv": ("auto", "brucks", "nb", "recursive_doubling", "ring"),
    "allreduce": ("auto", "nb", "smp", "recursive_doubling", "reduce_scatter_allgather"),
    "alltoall": ("auto", "brucks", "nb", "pairwise", "pairwise_sendrecv_replace", "scattered"),
    "barrier": ("auto", "nb", "smp", "dissemination"),
    "bcast": ("auto", "binomial", "nb", "smp", "scatter_recursive_doubling_allgather", "scatter_ring_allgather"),
    "reduce": ("auto", "binomial", "nb", "smp", "reduce_scatter_gather"),
    "reduce_scatter": ("auto", "nb", "noncommutative", "pairwise", "recursive_doubling", "recursive_halving"),
    "reduce_scatter_block": ("auto", "noncommutative", "recursive_doubling", "pairwise", "recursive_halving", "nb"),
    "scan": ("auto", "nb", "smp", "recursive_doubling"),
}

#: By collective, bytes around which something changes.
AROUND = {
    "allgather": (1, 300, 9102, 9103, 10_240, 74_898, 74_899),
    "allgatherv": (1, 300, 9102, 40_000, 150_000),
    "allreduce": (0, 8, 9, 2049, 100_003),
    "alltoall": (1, 256, 257, 32_768, 32_769),
    "alltoallv": (0, 1, 9, 1000),
    "barrier": (0,),
    "bcast": (0, 7, 12_288, 12_289, 524_288, 524_289),
    "exscan": (1, 20_000),
    "gather": (1, 1023, 1024),
    "gatherv": (1, 1000),
    "reduce": (0, 7, 2048, 2049, 100_003),
    "reduce_scatter": (1, 100, 70_000, 120_000),
    "reduce_scatter_block": (1, 100, 70_000, 80_000),
    "scan": (1, 20_000),
    "scatter": (1, 1023, 1024),
    "scatterv": (1, 1000),
}

ROOTED = {"bcast", "reduce", "gather", "gatherv", "scatter", "scatterv"}
REDUCTIONS = {"reduce", "allreduce", "reduce_scatter", "reduce_scatter_block", "scan", "exscan"}
#: Nodes, one at a time: each rank alone; two dealt out; three in blocks.
CLUSTERS = ((0, 1, 2, 3, 4, 5, 6, 7), (0, 1, 0, 1, 0, 1, 0, 1), (0, 0, 0, 1, 1, 2, 2))


def calls(nodes: tuple[int, ...]) -> Iterator[tuple[Collective, str]]:
    """The calls to record, each with the algorithm to set or ``auto``."""
    size = len(nodes)
    for name, around in AROUND.items():
        for nbytes in around:
            for root in (0, 3) if name in ROOTED else (0,):
                yield _call(name, nbytes, nodes, root=root), "auto"
            if name in REDUCTIONS:
                yield _call(name, nbytes, nodes, root=size - 1, commutative=False), "auto"
        for algorithm in VALUES.get(name, ()):
            if algorithm in ("auto", "nb", "noncommutative", "pairwise_sendrecv_replace"):
                continue
            element = 8 if name in ("reduce", "allreduce") else 1
            for nbytes in (0,) if name == "barrier" else (16, 160, 1608):
                yield _call(name, nbytes, nodes, root=1 if name in ROOTED else 0, element=element), algorithm


def number_of_sizes(name: str, ranks: int) -> int:
    return {"none": 0, "one": 1, "rank": ranks, "pair": ranks**2}[SIZES[name]]


def _call(name: str, nbytes: int, nodes: tuple[int, ...], **arguments: int) -> Collective:
    size = len(nodes)
    sizes = {
        "none": lambda: (),
        "one": lambda: (nbytes,),
        "rank": lambda: tuple(nbytes * (rank * 5 % 3) // 2 for rank in range(size)),
        "pair": lambda: tuple(nbytes * ((7 * rank + 3 * peer) % 3) for rank in range(size) for peer in range(size)),
    }[SIZES[name]]()
    return Collective(name, size, sizes, nodes=nodes, **arguments)  # type: ignore[arg-type]


def record(nodes: tuple[int, ...], folder: Path) -> list[Recorded]:
    wanted = list(calls(nodes))
    lines = []
    for call, algorithm in wanted:
        variable = "-" if algorithm == "auto" else f"MPIR_CVAR_{call.name.upper()}_INTRA_ALGORITHM"
        value = 0 if algorithm == "auto" else VALUES[call.name].index(algorithm)
        head = (call.name, call.root, int(call.commutative), call.element, variable, value)
        lines.append(" ".join(map(str, (*head, *call.sizes))))
    (folder / "calls.txt").write_text("\n".join(lines) + "\n")
    in_blocks = nodes == tuple(sorted(nodes))
    environment = {
        "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
        "MPIR_CVAR_NUM_CLIQUES": str(len(set(nodes))),
        "MPIR_CVAR_CLIQUES_BY_BLOCK": str(int(in_blocks)),
        "SENDS_FOLDER": str(folder),
    }
    command = ["mpirun", "-n", str(len(nodes)), str(folder / "calls"), str(folder / "calls.txt")]
    subprocess.run(command, check=True, env={**os.environ, **environment})
    by_rank = [_read((folder / str(rank)).read_text().splitlines(), rank) for rank in range(len(nodes))]
    return [
        Recorded(call, algorithm, tuple(sends[index] for sends in by_rank))
        for index, (call, algorithm) in enumerate(wanted)
    ]


def _read(lines: Sequence[str], rank: int) -> list[tuple[tuple[int, int], ...]]:
    """By call, a rank's sends to others: peer and bytes."""
    peers: dict[str, int] = {}
    sends: list[list[tuple[int, int]]] = []
    mode, number = "", 0
    for line in lines:
        what, *rest = line.split()
        if what in ("peer", "call", "end"):
            mode, number = what, int(rest[0])
            if mode == "call":
                sends.append([])
        elif mode == "peer":
            peers.setdefault(rest[0], number)
        elif mode == "call" and rest[0] in peers:
            # An endpoint that is nobody else's is the rank's own.
            sends[-1].append((peers[rest[0]], int(rest[1])))
    return [tuple(each) for each in sends]


def main() -> None:
    recorded: list[Recorded] = []
    for nodes in CLUSTERS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            library = folder / "libsends.so"
            subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, HERE / "sends.c", "-ldl"], check=True)
            program = ["mpicc", "-o", folder / "calls", HERE / "calls.c", library, f"-Wl,-rpath,{folder}"]
            subprocess.run(program, check=True)
            recorded += record(nodes, folder)
    with gzip.GzipFile(RECORDED, "wb", mtime=0) as file:
        file.write(json.dumps([each.as_json() for each in recorded], separators=(",", ":")).encode())
    print(f"{len(recorded)} calls, {RECORDED.stat().st_size} bytes")


if __name__ == "__main__":
    main()
