"""Datatypes of MPI, by the numbers that SimGrid's traces have for them."""

from __future__ import annotations

#: Bytes of an element by number, on the 64-bit Linux that writes such traces.
#:
#: References
#: ----------
#: SimGrid 3.32, src/smpi/mpi/smpi_datatype.cpp: the list of predefined datatypes.
_NBYTES = {
    -1: 0,
    **dict(enumerate((8, 4, 1, 2, 8, 4, 1, 8, 1, 1, 2, 4, 8, 8, 16, 4, 1))),  # MPI_DOUBLE to MPI_C_BOOL
    **dict(enumerate((1, 2, 4, 8, 1, 2, 4, 8, 8, 16, 32, 8, 8), 17)),  # MPI_INT8_T to MPI_OFFSET
    **dict(enumerate((8, 16, 16, 8, 8, 8, 16, 16), 30)),  # the pairs that MPI_MINLOC takes
    **dict(enumerate((4, 4, 8, 16, 8, 16, 16, 4, 2, 4, 8, 16), 38)),  # Fortran's
    **dict(enumerate((32, 1, 8, 16, 32, 0, 0, 1, 8, 8), 50)),  # C++'s, and those of the implementation
}

#: What counts are of where the ``init`` line says nothing, and where it says something.
BYTE, DOUBLE = 1, 8


def nbytes_of_type(number: str) -> int:
    """Bytes of an element of a datatype.

    Raises
    ------
    ValueError
        If there is no such datatype.
    """
    try:
        return _NBYTES[int(number)]
    except (ValueError, KeyError):
        raise ValueError(f"expected the number of a datatype, -1 to {max(_NBYTES)}, got {number[:80]!r}") from None
