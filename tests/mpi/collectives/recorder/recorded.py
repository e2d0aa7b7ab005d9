"""Messages of a real MPICH, as `record` wrote them."""

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

from dask_efficiency.mpi.collectives.call import Collective

RECORDED = Path(__file__).parents[3] / "data" / "mpi" / "mpich-4.0.2-sends.json.gz"


class Recorded(NamedTuple):
    call: Collective
    #: Algorithm that MPICH was set to use, or ``auto``.
    algorithm: str
    #: By rank: peer and bytes of each message to another rank, in order; -1 bytes where the data was not contiguous.
    sends: tuple[tuple[tuple[int, int], ...], ...]

    def as_json(self) -> list[Any]:
        call = self.call
        own = call.name, call.sizes, call.root, call.nodes, call.element, call.commutative
        return [*own, self.algorithm, self.sends]


def read() -> list[Recorded]:
    records = []
    for name, sizes, root, nodes, element, commutative, algorithm, sends in json.loads(
        gzip.decompress(RECORDED.read_bytes())
    ):
        call = Collective(name, len(nodes), tuple(sizes), root, tuple(nodes), element, commutative)
        by_rank = tuple(tuple((peer, nbytes) for peer, nbytes in own) for own in sends)
        records.append(Recorded(call, algorithm, by_rank))
    return records
