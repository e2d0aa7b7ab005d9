"""Waits: what a thread of a task waits for, and where, as far as its stack tells."""

from __future__ import annotations

import re

from dask_efficiency.accounts.lines import BUILT_IN, Stack, is_own, is_servant, is_the_users

#: Causes of waiting at a lock, or asleep, that a stack tells: something of the cluster's, processes that were started,
#: and a lock that is polled.
CLUSTER, CHILD, LOCK = "cluster", "child-process", "lock"

#: Places of waits for the cluster: tasks that this one sent or asked for; a lock or semaphore; a queue, variable or
#: event; a P2P shuffle; and any other answer.
TASKS, DASK_LOCK, MESSAGES, SHUFFLE, ANSWER = "tasks", "dask-lock", "messages", "shuffle", "answer"
#: Places of waits at locks: another thread of the process; inside a library; a library's lock; a database's; any other.
THREAD, LIBRARY, LIBRARY_LOCK, DATABASE, OWN_LOCK = "thread", "library", "library-lock", "database", "lock"

_OF_CLUSTER = re.compile(r"[\\/]distributed[\\/](?:.+[\\/])?(\w+)\.py$")
_PLACES = {
    **dict.fromkeys(("client", "worker_client", "actor", "worker", "utils_comm"), TASKS),
    **dict.fromkeys(("lock", "semaphore", "multi_lock"), DASK_LOCK),
    **dict.fromkeys(("queues", "variable", "event", "pubsub"), MESSAGES),
}
_OF_CHILDREN = re.compile(
    r"[\\/](?:subprocess\.py|loky[\\/].+|concurrent[\\/]futures[\\/]process\.py|dask[\\/]multiprocessing\.py)$"
)
#: Files that wait for threads as well as for processes.
_OF_EITHER = re.compile(
    r"[\\/](?:multiprocessing[\\/](?:pool|process|queues|managers|connection)\.py"
    r"|concurrent[\\/]futures[\\/]_base\.py|joblib[\\/]parallel\.py)$"
)
_OF_THREADS = re.compile(r"[\\/](?:threading\.py|queue\.py|concurrent[\\/]futures[\\/]\w+\.py)$")
_OF_DATABASES = re.compile(r"[\\/](?:sqlite3|sqlalchemy|psycopg\w*|pymysql|MySQLdb|duckdb)[\\/]")
#: Calls of Python's database interface (PEP 249) that wait for a database.
_DATABASE_CALLS = frozenset({"execute", "executemany", "executescript", "commit", "rollback"})
#: Starts of the names of the worker's functions that run a task: what they call is the task.
_RUNS = ("_run_task", "apply_function")
#: Ends of the names of functions that take a lock.
_TAKES = ("acquire", "__enter__")


def told_cause(stack: Stack, *, has_children: bool) -> str:
    """Cause of a wait at a lock, or of a sleep, that its stack tells; empty if it tells none.

    Only frames count that wait on behalf of the innermost function of the user's or of a library: servants, and that
    function itself. Threads and processes are waited for in the same ways, but for processes only if there are any.
    """
    for frame in reversed(stack):
        if _OF_CHILDREN.search(frame.file) or (has_children and _OF_EITHER.search(frame.file)):
            return CHILD
        if _OF_CLUSTER.search(frame.file):
            return "" if frame.function.startswith(_RUNS) else CLUSTER
        if not is_servant(frame.file):
            return LOCK if frame.function.rpartition(".")[2] == "acquire" and not is_own(frame) else ""
    return ""


def taker(stack: Stack) -> int:
    """Position of the function that takes the lock at which a stack waits: the innermost that is no lock's own."""
    frames = [i for i, frame in enumerate(stack) if frame.file != BUILT_IN and not frame.function.endswith(_TAKES)]
    of_libraries = [i for i in frames if not is_servant(stack[i].file) or is_own(stack[i])]
    return (of_libraries or frames or [0])[-1]


def place_of_wait(stack: Stack) -> str:
    """Place of a wait for a lock, or for the cluster, by its stack; empty without frames.

    What a library's function waits for in C code, by its own calls or by its threads, is not known from outside.
    """
    if not stack:
        return ""
    if told_cause(stack, has_children=False) == CLUSTER:
        return _place_in_cluster(stack)
    last = stack[-1]
    if last.function in _DATABASE_CALLS or any(_OF_DATABASES.search(frame.file) for frame in stack[-2:]):
        return DATABASE
    if last.function.endswith(_TAKES):
        return OWN_LOCK if is_own(stack[taker(stack)]) else LIBRARY_LOCK
    if _OF_THREADS.search(last.file):
        return THREAD
    return OWN_LOCK if is_the_users(last.file) else LIBRARY


def _place_in_cluster(stack: Stack) -> str:
    if any("/distributed/shuffle/" in frame.file.replace("\\", "/") for frame in stack):
        return SHUFFLE
    modules = [found[1] for frame in reversed(stack) if (found := _OF_CLUSTER.search(frame.file))]
    return next((_PLACES[module] for module in modules if module in _PLACES), ANSWER)
