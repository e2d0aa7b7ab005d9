"""Every task opens a client of its own, to look something up on the scheduler.

source: PrefectHQ/prefect issue 17618; a like case: dask/distributed issue 9043
date:   2025-03-27 (the like case 2025-04-16)
seen:   a flow with many tasks connects a new client for each, up to tens of thousands, though hardly any task needs it;
        runs get slow and unstable. In the like case a scheduler with hundreds of clients is busy with them alone.
cause:  a client is expensive: connections, a handshake, a description of the whole cluster, and more to close it.
cure:   do not open one in the task: the client of the worker (get_client), or pass the value as an argument.
"""

from __future__ import annotations

from distributed import Client, Variable, get_client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
TASKS = scaled(400)

EXPECTED = Expected(
    cause="each task opens and closes a client, a connection to the scheduler, which takes longer than its work",
    place="approve, where it opens the client",
    cure="the client of the worker, get_client(), or the limit as an argument",
    says=r"\bclients?\b.{0,60}(each|every|task|open|creat|start|connect|clos|new|own)|(each|every|open\w*|creat\w*"
    r"|start\w*|new|own) .{0,30}\bclients?\b|\bconnect(s|ing|ion|ions|ed)?\b|handshake|wait\w* for the (scheduler"
    r"|event loop|client)|Client\.__init__|Client\.close|\bClient\(",
    places=(*marked(__file__), function("approve"), r"client\.py|\bClient\b|\bsync\b"),
    cures=r"get_client|worker_client|(one|the same|a single|existing|worker's) client|re-?use|\bshare|\bonce\b"
    r"|outside|as an argument|pass .{0,40}(value|argument)|(open|creat|start)\w* fewer|not (open|create|start)"
    r"|avoid .{0,40}(client|connect)|keep .{0,30}(client|connection)",
    never={
        HOLDS_GIL: "one thread a worker",
        MORE_WORKERS: "clients take the time, on the workers and on the scheduler",
    },
)


def approve(order: int, address: str) -> bool:
    with Client(address, set_as_default=False) as own:  # <- here
        limit = Variable("limit", client=own).get()
    compute_for(0.01)
    return bool(order % 100 < limit)


def approve_with_worker(order: int) -> bool:
    limit = Variable("limit", client=get_client()).get()
    compute_for(0.01)
    return bool(order % 100 < limit)


def bad(client: Client) -> float:
    Variable("limit", client=client).set(60)
    address = client.scheduler_info(n_workers=0)["address"]
    return float(sum(client.gather(client.map(approve, range(TASKS), address=address))))  # <- here


def good(client: Client) -> float:
    Variable("limit", client=client).set(60)
    return float(sum(client.gather(client.map(approve_with_worker, range(TASKS)))))
