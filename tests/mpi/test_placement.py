from __future__ import annotations

from pathlib import Path

import pytest

from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.mpi.placement import read_hosts_of_ranks
from tests.mpi.test_machine import star


def hosts(folder: Path, text: str, ranks: int) -> tuple[str, ...]:
    (folder / "hosts").write_text(text)
    return read_hosts_of_ranks(star(4), folder / "hosts", ranks)


def test_hosts_are_filled_in_their_order(tmp_path: Path) -> None:
    assert hosts(tmp_path, "h2:2\nh0\nh1:4\n", 5) == ("h2", "h2", "h0", "h1", "h1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("h0:2\n", "hosts: 5 ranks, and 2 slots"),
        ("h0:2\nhall:3\n", "line 2: no host 'hall' in the cluster; there is: 'h0'"),
        ("h0:5\n", "'h0' gets 5 ranks and has 4 slots"),
    ],
)
def test_what_cannot_be_placed_is_named(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TextFileError, match=said):
        hosts(tmp_path, text, 5)
