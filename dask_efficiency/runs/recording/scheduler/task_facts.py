"""TaskReader: what the scheduler knows of a task beside its transitions, as a recorder notes it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from dask_efficiency.runs.trace.recorder import TaskFacts

if TYPE_CHECKING:
    from distributed import Scheduler

#: Names of spans that are remembered.
MAX_SPANS = 10_000

_KEY, _PREFIX, _SPAN = attrgetter("key"), attrgetter("prefix.name"), attrgetter("group.span_id")
_PRIORITY, _DEPENDENCIES = attrgetter("priority"), attrgetter("dependencies")
_CONSTRAINED = attrgetter("host_restrictions", "worker_restrictions", "resource_restrictions", "retries", "actor")


class TaskReader:
    """Reads a scheduler's tasks, for all tasks of a graph as it is taken in."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._tasks = scheduler.tasks
        self._span_names: dict[str | None, str] = {}

    def read(self, keys: Sequence[Any]) -> TaskFacts | None:
        """What is known of tasks; None where the scheduler does not know all of them."""
        found = [*map(self._tasks.get, keys)]
        if not all(found):
            return None
        span_ids = [*map(_SPAN, found)]
        known = [*map(self._span_names.get, span_ids)]
        spans = cast("list[str]", known) if None not in known else [*map(self._name_of_span, span_ids)]
        priorities = [*map(_PRIORITY, found)]
        # Of tasks that a task submits the second part is not whole.
        if (
            {*map(type, priorities)} != {tuple}
            or {*map(type, chain.from_iterable(priorities))} != {int}
            or {*map(len, priorities)} != {3}
        ):
            priorities = [*map(_priority, priorities)]
        needs = [*map(_DEPENDENCIES, found)]
        dependencies = [[*map(_KEY, needed or ())] for needed in needs] if any(needs) else ()
        constraints = {}
        if any(map(any, map(_CONSTRAINED, found))):
            constraints = {i: _constraints(ts) for i, ts in enumerate(found) if any(_CONSTRAINED(ts))}
        return TaskFacts([*map(_PREFIX, found)], spans, priorities, dependencies, constraints)

    def _name_of_span(self, span_id: str | None) -> str:
        known = self._span_names.get(span_id)
        if known is not None:
            return known
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
