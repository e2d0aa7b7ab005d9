"""Ranks that wait for one another: who waits for whom, by file and line."""

from __future__ import annotations

from dask_efficiency.mpi.errors import MpiTraceError
from dask_efficiency.mpi.machine import Machine, Rank
from dask_efficiency.mpi.program import ANY, Op, Program

#: Ranks that an error names.
MAX_SHOWN = 10


def check_finished(program: Program, machine: Machine) -> None:
    """See that every rank came to its end.

    Raises
    ------
    MpiTraceError
        With the ranks that wait, where, and for whom.
    """
    waiting = [rank for rank in machine.ranks if rank.pending]
    if not waiting:
        return
    said = [f"rank {rank.number} {_said(program, rank)}" for rank in waiting[:MAX_SHOWN]]
    more = f"; and {len(waiting) - MAX_SHOWN} more ranks" if len(waiting) > MAX_SHOWN else ""
    raise MpiTraceError(program.name, f"the program does not end: {'; '.join(said)}{more}")


def _said(program: Program, rank: Rank) -> str:
    actions = program.ranks[rank.number]
    where = program.where(rank.number, rank.doing)
    op = actions.ops[rank.doing]
    if op == Op.COLLECTIVE:
        call = program.calls[actions.peers[rank.doing]].call
        return f"waits in {call.name} ({where})"
    asked = rank.mailbox.asked_for
    if op in (Op.RECV, Op.WAIT, Op.WAITALL) and asked:
        source, tag = asked[0]
        sender = "any rank" if source == ANY else f"rank {source}"
        tagged = "any tag" if tag == ANY else f"tag {tag}"
        return f"waits for a message of {sender} with {tagged} ({where})"
    return f"waits for rank {actions.peers[rank.doing]} to receive ({where})" if op == Op.SEND else f"waits ({where})"
