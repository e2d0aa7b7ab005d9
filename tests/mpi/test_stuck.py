from __future__ import annotations

from pathlib import Path

import pytest

from dask_efficiency.mpi.errors import MpiTraceError
from tests.mpi.test_machine import simulated


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "0 recv 1 0 8\n0 send 1 0 8\n1 recv 0 0 8\n1 send 0 0 8\n",
            r"does not end: rank 0 waits for a message of rank 1 with tag 0 \(.*, line 1\); rank 1 waits .* line 3\)",
        ),
        ("0 send 1 0 1e6\n1 compute 1\n", r"rank 0 waits for rank 1 to receive \(.*, line 1\)"),
        ("0 recv -555 -444 8\n1 compute 1\n", r"rank 0 waits for a message of any rank with any tag"),
        ("0 irecv 1 3 8\n0 wait 1 0 3\n1 compute 1\n", r"rank 0 waits for a message of rank 1 with tag 3"),
        ("0 barrier\n1 recv 0 0 8\n1 barrier\n", r"rank 0 waits in barrier \(.*, line 1\); rank 1 waits for a message"),
    ],
)
def test_ranks_that_wait_for_ever_are_named(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(MpiTraceError, match=said):
        simulated(tmp_path, text)
