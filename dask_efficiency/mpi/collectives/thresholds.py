"""Sizes and numbers of ranks at which MPICH takes another algorithm.

References
----------
MPICH 4.0.2, ``maint/tuning/coll/mpir/generic.json`` and ``src/mpi/coll/cvars.txt``; MPICH 3.2.1, the variables at the
top of ``src/mpi/coll/*.c``. They are equal in both unless said otherwise.
"""

from __future__ import annotations

#: ``MPIR_CVAR_BCAST_SHORT_MSG_SIZE``: from here a broadcast scatters; 4.0.2 only above it.
MIN_BCAST_SCATTER_BYTES = 12_288

#: ``MPIR_CVAR_BCAST_LONG_MSG_SIZE``: below it a broadcast to a power of two of ranks doubles; 4.0.2 also at it.
MAX_BCAST_RECURSIVE_DOUBLING_BYTES = 524_288

#: ``MPIR_CVAR_BCAST_MIN_PROCS``: fewer ranks never scatter.
MIN_BCAST_SCATTER_RANKS = 8

#: ``MPIR_CVAR_REDUCE_SHORT_MSG_SIZE``: up to here a reduce takes the tree.
MAX_REDUCE_BINOMIAL_BYTES = 2048

#: Up to here an allreduce doubles: ``MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE`` of 3.2.1, ``avg_msg_size<=8`` of 4.0.2.
MAX_ALLREDUCE_RECURSIVE_DOUBLING_BYTES = {"3.2.1": 2048, "4.0.2": 8}

#: ``MPIR_CVAR_ALLGATHER_LONG_MSG_SIZE``: below it, all ranks' blocks together, a power of two of ranks doubles.
MAX_ALLGATHER_RECURSIVE_DOUBLING_BYTES = 524_288

#: ``MPIR_CVAR_ALLGATHER_SHORT_MSG_SIZE``: below it, other numbers of ranks take Bruck's algorithm.
MAX_ALLGATHER_BRUCKS_BYTES = 81_920

#: ``MPIR_CVAR_ALLGATHERV_PIPELINE_MSG_SIZE``: the pieces in which a block goes around the ring.
ALLGATHERV_PIECE_BYTES = 32_768

#: ``MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE``: up to here, a block, many ranks take Bruck's algorithm.
MAX_ALLTOALL_BRUCKS_BYTES = 256

#: Fewest ranks for which Bruck's algorithm is taken. 4.0.2 reads its ``comm_size<8`` as "at most 8" here: the condition
#: stands behind one on the call (in place or not), so no longer in the part of the table that is cut down once for a
#: communicator, and what evaluates it for a call compares with ``<=`` (``src/mpi/coll/src/csel.c``).
MIN_ALLTOALL_BRUCKS_RANKS = {"3.2.1": 8, "4.0.2": 9}

#: ``MPIR_CVAR_ALLTOALL_MEDIUM_MSG_SIZE``: up to here, a block, all messages are posted at once.
MAX_ALLTOALL_SCATTERED_BYTES = 32_768

#: ``MPIR_CVAR_ALLTOALL_THROTTLE``: of so many peers at once, the rank itself among them.
ALLTOALL_SCATTERED_PEERS = 32

#: ``MPIR_CVAR_REDSCAT_COMMUTATIVE_LONG_MSG_SIZE``: below it, all ranks' blocks together, a reduce-scatter halves.
MAX_REDUCE_SCATTER_HALVING_BYTES = 524_288

#: ``MPIR_CVAR_GATHERV_INTER_SSEND_MIN_PROCS``, which counts inside one communicator too: from so many ranks on, the
#: sends of a gatherv are synchronous.
MIN_GATHERV_SYNCHRONOUS_RANKS = 32
