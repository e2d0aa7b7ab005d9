"""MeteredSubmit: replaces an executor's ``submit``, and has each worker's calls measured."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from dask_efficiency.plugins.patches import SUBMIT, Replacements

if TYPE_CHECKING:
    from collections.abc import Callable

    from dask_efficiency.plugins.worker.executor import ActorTimer, TaskMeter

logger = logging.getLogger("dask_efficiency")

#: A call with more arguments is not upstream's, whose calls have seven.
_MAX_ARGUMENTS = 16

#: Workers of one process may come and go in several threads.
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True, eq=False)
class WorkerCalls:
    """What one worker meters on one executor."""

    #: The worker's ``active_threads``, which upstream hands to each of its tasks and methods of actors.
    table: dict[Any, Any]
    tasks: TaskMeter
    methods: ActorTimer


class MeteredSubmit:
    """One executor's ``submit``, while workers meter what they run there.

    The executor stays the object that users know. Several workers may share it, as they do with
    ``executor="offload"``: each call finds its worker by the table among its arguments. Calls without a worker's table
    are passed on as they are.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._submit: Callable[..., Future[Any]] = executor.submit
        self._replacements = Replacements()
        #: By the identity of their tables.
        self._workers: dict[int, WorkerCalls] = {}

    @classmethod
    def attach(cls, executor: Executor, calls: WorkerCalls) -> MeteredSubmit | None:
        """Meter a worker's calls on an executor; None, and nothing changed, where its ``submit`` cannot be replaced."""
        with _LOCK:
            try:
                present = executor.submit
                placed = present if type(present) is cls else cls(executor)
                placed._workers[id(calls.table)] = calls
                if placed is present or placed._replacements.put(SUBMIT, executor, lambda _: placed):
                    return placed
            except Exception as error:
                logger.info("dask_efficiency does not measure CPU on %s: %s", type(executor).__name__, error)
            return None

    def detach(self, calls: WorkerCalls) -> None:
        """Stop metering these calls; after the last ones, the executor is as it was. Safe to call twice."""
        with _LOCK:
            self._take_away(calls)

    def _take_away(self, calls: WorkerCalls) -> None:
        if self._workers.get(id(calls.table)) is calls:
            del self._workers[id(calls.table)]
        if not self._workers:
            self._replacements.put_back()

    def __call__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit, metered if it is a worker's task or an actor's method."""
        if args:
            # Methods of actors come with their arguments, tasks as a closure that brings their context along.
            calls = self._whose(args)
            if calls is not None and not kwargs:
                return calls.methods.submit(self._submit, fn, args)
        elif type(fn) is FunctionType and fn.__closure__ is not None and not kwargs:
            for cell in fn.__closure__:
                try:
                    value = cell.cell_contents
                except ValueError:  # empty
                    continue
                if type(value) is tuple:
                    calls = self._whose(value)
                    if calls is not None:
                        return calls.tasks.submit(self._submit, fn)
        return self._submit(fn, *args, **kwargs)

    def _whose(self, arguments: tuple[Any, ...]) -> WorkerCalls | None:
        """The worker whose table is among these arguments."""
        workers = self._workers
        if len(arguments) <= _MAX_ARGUMENTS:
            for argument in reversed(arguments):  # upstream's comes near the end
                calls = workers.get(id(argument))
                if calls is not None:
                    return calls
        return None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Executor, str]]:
        # A copy of the executor has its own ``submit``, and needs no package of ours where it is unpickled.
        return getattr, (self.executor, "submit")
