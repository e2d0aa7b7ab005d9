import pytest

from dask_efficiency.accounts.lines import BUILT_IN, Frame, Stack
from dask_efficiency.accounts.waits import (
    ANSWER,
    CHILD,
    CLUSTER,
    DASK_LOCK,
    DATABASE,
    LIBRARY,
    LIBRARY_LOCK,
    LOCK,
    MESSAGES,
    OWN_LOCK,
    SHUFFLE,
    TASKS,
    THREAD,
    place_of_wait,
    taker,
    told_cause,
)

OWN = Frame("train", "/home/me/train.py", 12)
SITE = "/env/lib/python3.12/site-packages"
STDLIB = "/usr/lib/python3.12"
COMPUTE = Frame("DaskMethodsMixin.compute", f"{SITE}/dask/base.py", 375)
QUEUE = (Frame("queue_get", f"{SITE}/dask/local.py", 139), Frame("Queue.get", f"{STDLIB}/queue.py", 171))
GETITEM = Frame("NetCDF4ArrayWrapper._getitem", f"{SITE}/xarray/backends/netCDF4_.py", 108)
XARRAY: Stack = (
    Frame("Adapter.__array__", f"{SITE}/xarray/core/indexing.py", 598),
    GETITEM,
    Frame("CombinedLock.__enter__", f"{SITE}/xarray/backends/locks.py", 234),
    Frame("SerializableLock.__enter__", f"{SITE}/dask/utils.py", 1150),
)


def built_in(name: str) -> Frame:
    return Frame(name, BUILT_IN, 0)


#: Stacks of waits at locks, the cause that they tell, and the place.
WAITS: dict[Stack, tuple[str, str]] = {
    (): ("", ""),
    (OWN,): ("", OWN_LOCK),
    (OWN, built_in("acquire")): ("", OWN_LOCK),
    (OWN, Frame("Semaphore.acquire", f"{STDLIB}/threading.py", 507)): ("", OWN_LOCK),
    (OWN, Frame("Queue.get", f"{STDLIB}/queue.py", 171)): ("", THREAD),
    (
        Frame("sync", f"{SITE}/zarr/core/sync.py", 152),
        Frame("wait", f"{STDLIB}/concurrent/futures/_base.py", 1),
    ): ("", THREAD),
    (OWN, Frame("ParquetFile.read", f"{SITE}/pyarrow/parquet/core.py", 648)): ("", LIBRARY),
    (OWN, built_in("dot")): ("", LIBRARY),
    (OWN, built_in("execute")): ("", DATABASE),
    (OWN, Frame("Connection.execute", f"{SITE}/sqlalchemy/engine/base.py", 1412), built_in("do_execute")): (
        "",
        DATABASE,
    ),
    (Frame("SerializableLock.__enter__", f"{SITE}/dask/utils.py", 1150),): ("", LIBRARY_LOCK),
    XARRAY: ("", LIBRARY_LOCK),
    (OWN, *XARRAY): ("", LIBRARY_LOCK),
    (OWN, Frame("BaseFileLock.acquire", f"{SITE}/filelock/_api.py", 330), built_in("sleep")): (LOCK, LIBRARY),
    # of the cluster
    (OWN, Frame("Client.gather", r"C:\env\Lib\site-packages\distributed\client.py", 2500)): (CLUSTER, TASKS),
    (OWN, Frame("ActorFuture.result", f"{SITE}/distributed/actor.py", 273)): (CLUSTER, TASKS),
    (OWN, COMPUTE, Frame("Client.get", f"{SITE}/distributed/client.py", 3200)): (CLUSTER, TASKS),
    (OWN, Frame("Semaphore.__enter__", f"{SITE}/distributed/semaphore.py", 520)): (CLUSTER, DASK_LOCK),
    (OWN, Frame("Queue.get", f"{SITE}/distributed/queues.py", 270)): (CLUSTER, MESSAGES),
    (OWN, Frame("Client.run", f"{SITE}/distributed/mystery.py", 1)): (CLUSTER, ANSWER),
    (Frame("shuffle_transfer", f"{SITE}/distributed/shuffle/_shuffle.py", 65),): (CLUSTER, SHUFFLE),
    (
        OWN,
        Frame("_run_task", f"{SITE}/distributed/worker.py", 2785),
        Frame("Event.wait", f"{STDLIB}/threading.py", 655),
    ): (
        "",
        THREAD,
    ),
    # a task that another function waits for; threads of a pool of this process
    (Frame("Client.gather", f"{SITE}/distributed/client.py", 2500), OWN): ("", OWN_LOCK),
    (OWN, COMPUTE, Frame("get", f"{SITE}/dask/threaded.py", 91), *QUEUE): ("", THREAD),
}


@pytest.mark.parametrize(("stack", "known"), WAITS.items())
def test_a_stack_tells_the_cause_and_the_place_of_a_wait(stack: Stack, known: tuple[str, str]) -> None:
    cause, place = known
    assert told_cause(stack, has_children=False) == cause
    if cause != LOCK or place != LIBRARY:
        assert place_of_wait(stack) == place


@pytest.mark.parametrize(
    ("stack", "always"),
    [
        ((OWN, COMPUTE, Frame("get", f"{SITE}/dask/multiprocessing.py", 229), *QUEUE), True),
        ((OWN, Frame("_chain", f"{STDLIB}/concurrent/futures/process.py", 620)), True),
        ((OWN, Frame("Popen._wait", f"{STDLIB}/subprocess.py", 2000), built_in("sleep")), True),
        ((OWN, Frame("Pool.map", f"{STDLIB}/multiprocessing/pool.py", 367)), False),
        ((OWN, Frame("Future.result", f"{STDLIB}/concurrent/futures/_base.py", 451)), False),
        ((OWN, Frame("Parallel.retrieve", f"{SITE}/joblib/parallel.py", 1650), built_in("sleep")), False),
    ],
)
def test_processes_are_waited_for_where_there_are_any(stack: Stack, always: bool) -> None:
    assert told_cause(stack, has_children=True) == CHILD
    assert told_cause(stack, has_children=False) == (CHILD if always else "")


def test_the_function_that_takes_a_lock_is_none_of_the_locks_own() -> None:
    assert XARRAY[taker(XARRAY)] == GETITEM
    assert taker((OWN, built_in("acquire"))) == 0
    assert taker((Frame("getter", f"{SITE}/dask/array/core.py", 130), XARRAY[-1])) == 0
    assert taker((XARRAY[-1],)) == 0
