"""MpiSettings: behaviour and costs of an MPI implementation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from dask_efficiency.mpi.collectives.choice import AUTO, VERSIONS, check_algorithm, check_version

#: Bytes from which on a message waits for its receiver: MPICH 3.2.1's default over TCP.
EAGER_BYTES = 65_536
#: Of a host of speed 1, if neither trace nor user give it (a round number; only ratios of times depend on it).
INSTRUCTIONS_PER_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class MpiSettings:
    """Behaviour and costs of an MPI implementation."""

    #: Version of MPICH that chooses the algorithms.
    version: str = VERSIONS[-1]
    #: Algorithms by collective instead of MPICH's choice.
    algorithms: Mapping[str, str] = field(default_factory=dict)
    #: Smaller messages are sent at once, others when their receiver is ready, after the latency there and back.
    eager_bytes: int = EAGER_BYTES
    #: Include that latency, and the order of answers among the receiver's own messages (see
    #: :class:`~dask_efficiency.mpi.messages.Connections`). SimGrid's model has neither.
    handshake: bool = True
    #: Time of sender and of receiver for each message.
    overhead_seconds: float = 0.0
    #: Rate at which a rank combines data in a reduction.
    reduce_bytes_per_second: float = float("inf")
    #: Of a host of speed 1; 0 means the trace's.
    instructions_per_second: float = 0.0

    def __post_init__(self) -> None:
        check_version(self.version)
        for name, algorithm in self.algorithms.items():
            if algorithm != AUTO:
                check_algorithm(name, algorithm)
        if self.eager_bytes < 0:
            raise ValueError(f"eager_bytes: expected at least 0, got {self.eager_bytes!r}")
        for setting in ("overhead_seconds", "instructions_per_second"):
            if not 0 <= (value := getattr(self, setting)) < inf:
                raise ValueError(f"{setting}: expected at least 0, got {value!r}")
        if not self.reduce_bytes_per_second > 0:
            raise ValueError(f"reduce_bytes_per_second: expected more than 0, got {self.reduce_bytes_per_second!r}")
