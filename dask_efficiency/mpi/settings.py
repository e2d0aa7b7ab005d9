"""MpiSettings: behaviour and costs of an MPI implementation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from dask_efficiency.mpi.collectives.choice import AUTO, VERSIONS, check_algorithm, check_version

#: Bytes from which on a message waits for its receiver: MPICH 3.2.1's default over TCP.
EAGER_BYTES = 65_536

#: Of a host of speed 1, if neither trace nor user give it (a round number; only ratios of times depend on it).
INSTRUCTIONS_PER_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class MpiSettings:
    """Behaviour and costs of an MPI implementation.

    Parameters
    ----------
    version
        Version of MPICH that chooses the algorithms: ``3.2.1`` or ``4.0.2``.
    algorithms
        Algorithms by collective instead of MPICH's choice.
    eager_bytes
        Smaller messages are sent at once, others when their receiver is ready, after the latency there and back.
    handshake
        Include that latency, and the order of answers among the receiver's own messages (see
        :class:`~dask_efficiency.mpi.messages.Connections`). SimGrid's model has neither.
    overhead_seconds
        Time of sender and of receiver for each message, at least 0.
    reduce_bytes_per_second
        Rate at which a rank combines data in a reduction, above 0.
    instructions_per_second
        Of a host of speed 1; 0 means the trace's.
    """

    version: str = VERSIONS[-1]
    algorithms: Mapping[str, str] = field(default_factory=dict)
    eager_bytes: int = EAGER_BYTES
    handshake: bool = True
    overhead_seconds: float = 0.0
    reduce_bytes_per_second: float = float("inf")
    instructions_per_second: float = 0.0

    def __post_init__(self) -> None:
        check_version(self.version)
        for name, algorithm in self.algorithms.items():
            if algorithm != AUTO:
                check_algorithm(name, algorithm)
        if self.eager_bytes < 0:
            raise ValueError(f"eager_bytes: expected at least 0, got {self.eager_bytes!r}")
        if not (isfinite(self.overhead_seconds) and self.overhead_seconds >= 0):
            raise ValueError(f"overhead_seconds: expected at least 0, got {self.overhead_seconds!r}")
        if not self.reduce_bytes_per_second > 0:
            raise ValueError(f"reduce_bytes_per_second: expected more than 0, got {self.reduce_bytes_per_second!r}")
        if not (isfinite(self.instructions_per_second) and self.instructions_per_second >= 0):
            raise ValueError(f"instructions_per_second: expected at least 0, got {self.instructions_per_second!r}")
