"""Stacks of a cluster by hand: which threads are alike, and how they read."""

from __future__ import annotations

from dask_efficiency.accounts.lines import Frame
from dask_efficiency.accounts.thread_looks import FREE, LOOP, OTHER, TASK, ThreadLook
from dask_efficiency.live.thread_stacks import ClusterStacks, alike
from dask_efficiency.show.terminal import plain

DISTRIBUTED = "/env/lib/python3.12/site-packages/distributed"
LOAD = (Frame("load", "/home/me/job.py", 12), Frame("recv", "/home/me/client.py", 88))
GATHER = (
    Frame("outer", "/home/me/job.py", 30),
    Frame("Client.gather", f"{DISTRIBUTED}/client.py", 2500),
    Frame("sync", f"{DISTRIBUTED}/utils.py", 400),
)
IDLE = (Frame("BaseEventLoop._run_once", "/py/asyncio/base_events.py", 600), Frame("select", "/py/selectors.py", 468))
BLOCKED = (Frame("BaseEventLoop._run_once", "/py/asyncio/base_events.py", 600), Frame("parse", "/home/me/plugin.py", 4))


def look(worker: str, kind: str, ident: int, *, seconds: float = 0.0, **fields: object) -> ThreadLook:
    values = {"name": f"thread-{ident}", "prefix": "", "key": "", "cause": "", "is_native": False, "stack": ()}
    values |= {"key": f"{fields['prefix']}-{ident}"} if "prefix" in fields else {}
    return ThreadLook(worker=worker, kind=kind, ident=ident, ns=round(seconds * 1e9), **(values | fields))  # type: ignore[arg-type]


LOOKS = [
    look("0", TASK, 1, seconds=3, prefix="load", cause="network", stack=LOAD),
    look("1", TASK, 2, seconds=252, prefix="load", cause="network", stack=LOAD),
    look("0", TASK, 3, seconds=60, prefix="outer", cause="cluster", stack=GATHER),
    look("0", LOOP, 4, stack=IDLE),
    look("1", LOOP, 5, stack=BLOCKED),
    look("", LOOP, 6, stack=IDLE),
    look("0", FREE, 7),
    look("0", OTHER, 8, stack=IDLE[:1]),
]
FOUND = ClusterStacks(
    alike(LOOKS, {"load": 2.0}, {LOAD[-1]: "data = sock.recv(8)"}),
    workers=3,
    silent={"2": "no answer in 1.5 s"},
    not_native={"0": "py-spy is not installed", "1": "py-spy is not installed"},
)

FIRST_SCREEN = """\
Stacks
3 workers

3 threads in tasks, the longest for 4.2 min; worker 2 did not answer.

load on 2 threads: 4.2 min, usually 2.0 s
  waiting for the network, in recv, client.py:88: data = sock.recv(8)
  workers 0, 1: load-2, load-1
  load (job.py:12)
  recv (client.py:88)

outer: 60.0 s
  tasks wait for other tasks, and keep their threads, in Client.gather,
  job.py:30
  worker 0: outer-3
  outer (job.py:30)
  Client.gather (client.py:2500)
  sync (utils.py:400)

(event loop) of worker 1
  in parse, plugin.py:4
  BaseEventLoop._run_once (base_events.py:600)
  parse (plugin.py:4)

2 event loops with nothing to do.
1 thread without a task.
1 other thread; --all lists them.

Without an answer
  worker 2: no answer in 1.5 s

Without native frames
  workers 0, 1: py-spy is not installed"""


def test_threads_that_do_the_same_are_one_and_the_longest_come_first() -> None:
    groups = [(one.kind, one.prefix, len(one.threads), one.seconds) for one in FOUND.groups]
    assert groups == [
        (TASK, "load", 2, 252.0),
        (TASK, "outer", 1, 60.0),
        (LOOP, "", 2, 0.0),
        (LOOP, "", 1, 0.0),
        (FREE, "", 1, 0.0),
        (OTHER, "", 1, 0.0),
    ]
    assert FOUND.groups[0].usual_seconds == 2.0
    assert FOUND.groups[0].workers == ("1", "0")


def test_the_first_screen_says_what_they_wait_for_where_and_who_did_not_answer() -> None:
    assert plain(FOUND.first_screen) == FIRST_SCREEN


def test_the_whole_has_all_threads_and_frames() -> None:
    deep = tuple(Frame(f"f{i}", "/home/me/deep.py", i) for i in range(1, 31))
    found = ClusterStacks(alike([look("0", TASK, 1, prefix="deep", stack=deep), *LOOKS[-1:]], {}, {}), workers=1)
    assert "(22 frames around it)" in plain(found.first_screen)
    whole = plain(found.document)
    assert "f1 (deep.py:1)" in whole
    assert "thread-8" in whole


def test_without_a_task_it_says_so() -> None:
    assert ClusterStacks((), workers=0).headline == "No thread runs a task"


def test_plain_data_have_every_thread_with_its_place() -> None:
    first, *_ = FOUND.to_dict()["groups"]
    assert (first["prefix"], first["does"], first["line"]) == ("load", "waiting for the network", "client.py:88")
    assert first["threads"][0] == {"worker": "1", "thread": "thread-2", "key": "load-2", "seconds": 252.0}
    assert first["stack"][0] == {"function": "load", "file": "/home/me/job.py", "line": 12}
    assert FOUND.to_dict()["silent"] == {"2": "no answer in 1.5 s"}
