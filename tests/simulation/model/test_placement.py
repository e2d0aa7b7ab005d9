from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.simulation.model.placement import parse_hostfile, read_hostfile


def test_lines_of_mpich_and_of_open_mpi_are_read() -> None:
    text = """
    # my hosts
    pc01:4           # MPICH
    pc02 slots=2     # Open MPI
    pc03 slots = 2 max_slots=4
    pc04
    [fe80::1]:3
    10.0.0.7 count=2 max-slots=2
    """
    placement = parse_hostfile(text, "hosts")
    assert placement.slots == {"pc01": 4, "pc02": 2, "pc03": 2, "pc04": 1, "fe80::1": 3, "10.0.0.7": 2}
    assert placement.lines["pc01"] == 3


@given(st.lists(st.tuples(st.sampled_from(["a", "b-1", "c.lab"]), st.integers(0, 9)), min_size=1), st.booleans())
def test_a_written_hostfile_is_read(lines: list[tuple[str, int]], mpich: bool) -> None:
    text = "\n".join(f"{host}:{n}" if mpich else f"{host} slots={n} # {n}" for host, n in lines)
    totals = {host: sum(n for other, n in lines if other == host) for host, _ in lines}
    if any(totals.values()):
        assert parse_hostfile(text, "hosts").slots == totals
    else:
        with pytest.raises(TextFileError):
            parse_hostfile(text, "hosts")


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("pc01:four", "slots: expected a whole number of at least 0, got 'four'"),
        ("pc01:-1", "slots: expected a whole number of at least 0, got '-1'"),
        ("pc01 slots=", "expected 'host', 'host:4' or 'host slots=4 max_slots=8', got 'slots='"),
        ("pc01 pc02", "expected 'host', 'host:4' or 'host slots=4 max_slots=8', got 'pc02'"),
        ("pc01 cpus=3", "got 'cpus=3'"),
        ("pc01:2 slots=3", "got 'slots=3'"),
        ("=4", "got '=4'"),
        ("pc01 slots=4 max_slots=2", "'pc01' has 4 slots, and max_slots=2"),
    ],
)
def test_a_line_that_cannot_be_understood_is_named(line: str, wrong: str) -> None:
    with pytest.raises(TextFileError) as caught:
        parse_hostfile(f"ok:1\n{line}\n", "my/hosts")
    assert str(caught.value).startswith("my/hosts, line 2: ")
    assert wrong in str(caught.value)


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(TextFileError):
        assert parse_hostfile(text, "hosts").slots


def test_a_file_that_is_no_text_is_named_with_its_line(tmp_path) -> None:
    path = tmp_path / "hosts"
    path.write_bytes(b"a:1\n\xff\xfe")
    with pytest.raises(TextFileError, match=r"hosts, line 2: expected text in UTF-8"):
        read_hostfile(path)
