"""TaskReader: what the scheduler knows of a task beside its transitions, as a recorder notes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_efficiency.trace.recorder import TaskFacts

if TYPE_CHECKING:
    from distributed import Scheduler

#: Names of spans that are remembered.
MAX_SPANS = 10_000


class TaskReader:
    """Reads a scheduler's tasks, for all tasks of a graph as it is taken in."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._tasks = scheduler.tasks
        self._span_names: dict[str | None, str] = {}

    def read(self, key: Any) -> TaskFacts | None:
        """Prefix, span, priority, dependencies and constraints; None where the scheduler does not know the task."""
        ts = self._tasks.get(key)
        if ts is None:
            return None
        span_id = ts.group.span_id
        span = self._span_names.get(span_id)
        if span is None:
            span = self._name_of_span(span_id)
        constraints = None
        if ts.host_restrictions or ts.worker_restrictions or ts.resource_restrictions or ts.retries or ts.actor:
            constraints = _constraints(ts)
        dependencies = [dependency.key for dependency in ts.dependencies] if ts.dependencies else ()
        priority: Any = ts.priority
        # Of tasks that a task submits the second part is not whole.
        if priority is None or len(priority) != 3 or not type(priority[0]) is type(priority[1]) is int:
            priority = _priority(priority)
        return ts.prefix.name, span, priority, dependencies, constraints

    def _name_of_span(self, span_id: str | None) -> str:
        spans = getattr(self._scheduler.extensions.get("spans"), "spans", {})
        span = spans.get(span_id)
        name = "/".join(span.name) if span is not None else ""
        if len(self._span_names) > MAX_SPANS:
            self._span_names.clear()
        self._span_names[span_id] = name
        return name


def _priority(priority: Any) -> tuple[int, int, int]:
    """The three parts of a priority; zeros for data that was scattered, or where upstream changed them."""
    if priority is None or len(priority) != 3:
        return 0, 0, 0
    user, graph, order = map(int, priority)
    return user, graph, order


def _constraints(ts: Any) -> dict[str, Any]:
    constraints: dict[str, Any] = {}
    restrictions = [*(ts.host_restrictions or ()), *(ts.worker_restrictions or ())]
    if restrictions:
        constraints["restrictions"] = sorted(map(str, restrictions))
        constraints["loose_restrictions"] = bool(ts.loose_restrictions)
    if ts.resource_restrictions:
        constraints["resources"] = {str(name): float(amount) for name, amount in ts.resource_restrictions.items()}
    if ts.retries:
        constraints["retries"] = int(ts.retries)
    if ts.actor:
        constraints["actor"] = True
    return constraints
