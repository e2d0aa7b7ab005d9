from typing import Any

import pytest

from dask_efficiency.mpi.collectives.call import Collective


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "allReduce"}, "'allReduce' is not a collective; expected one of allgather, "),
        ({"size": 0}, "bcast of 0 ranks; expected at least 1"),
        ({"root": 4}, "bcast has root 4; expected a rank from 0 to 3"),
        ({"root": -1}, "bcast has root -1"),
        ({"nodes": (0, 0)}, "bcast of 4 ranks has 2 nodes; expected all or none"),
        ({"element": 0}, "bcast has elements of 0 bytes; expected at least 1"),
        ({"sizes": (8, 8)}, "bcast of 4 ranks has 2 sizes; expected 1"),
        ({"sizes": (-8,)}, "bcast has a size of -8; expected a multiple of 4 bytes"),
        ({"sizes": (6,)}, "bcast has a size of 6; expected a multiple of 4 bytes"),
        ({"name": "alltoallv", "sizes": (4,) * 4}, "alltoallv of 4 ranks has 4 sizes; expected 16"),
        ({"name": "gatherv", "sizes": (4,)}, "gatherv of 4 ranks has 1 sizes; expected 4"),
        ({"name": "barrier", "sizes": (4,)}, "barrier of 4 ranks has 1 sizes; expected 0"),
    ],
)
def test_a_call_that_does_not_fit_together_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Collective(**{"name": "bcast", "size": 4, "sizes": (8,), "element": 4, **arguments})
