"""Transitions: calls a worker's meter for those transitions of its tasks that matter to it, and for no others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from distributed.worker_state_machine import WorkerState

from dask_efficiency.plugins.patches import PLUGINS, TRANSITIONS, Replacements

if TYPE_CHECKING:
    from distributed import Worker

#: Called with a task's key, and the states that it left and came to.
Hook = Callable[[Any, str, str], object]

#: Between two of these states nothing moves that matters to slots.
_QUIET = frozenset({"memory", "released", "forgotten", "fetch", "flight", "missing", "error"})

#: States of a task that was received and has no slot.
WITHOUT_SLOT = frozenset({"waiting", "ready", "constrained"})

#: States in which a task may be in flight, beside ``flight`` itself.
MAYBE_IN_FLIGHT = frozenset({"cancelled", "resumed"})

#: Workers of one process may come and go in several threads.
_lock = threading.Lock()


class Transitions:
    """Has upstream call a hook for one worker's tasks.

    A plugin is called for every transition of every task, and upstream alone takes some 3,400 instructions a call: six
    of them are 0.4 % of a task that does nothing. So upstream's table of transitions is replaced, and its state
    machine does not see this plugin among the others. Where this is not possible, the hook is the plugin's own.

    Parameters
    ----------
    worker
        The worker.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._plugin: Any = None
        #: What stands in the place of its plugins, while the state machine does not see this one.
        self._plugins: _Plugins | None = None
        self._hidden = Replacements()

    @property
    def attached(self) -> bool:
        """Whether anything is called."""
        return self._plugin is not None

    def attach(self, plugin: Any, hook: Hook, *, note: Hook | None = None) -> None:
        """Call these from now on, for each transition that :func:`matters`, and for each that is :func:`noted`."""
        if plugin is not self._plugin:
            self.detach()
            self._plugin = plugin
        if self._follow(hook, note):
            vars(plugin).pop("transition", None)
            self._hide()
        else:
            self._unfollow()
            plugin.transition = _chosen(hook, note)

    def detach(self) -> None:
        """Call nothing more; after the last worker of the process, upstream is as it was. Safe to call twice."""
        self._unfollow()
        if self._plugin is not None:
            vars(self._plugin).pop("transition", None)
            self._plugin = None

    def _follow(self, hook: Hook, note: Hook | None) -> bool:
        with _lock:
            state = self._worker.state
            return _of_slots.follow(state, hook) and _of_traces.follow(state, note)

    def _unfollow(self) -> None:
        with _lock:
            for hooks in (_of_slots, _of_traces):
                hooks.follow(self._worker.state, None)
        if self._plugins is not None:
            self._plugins.show()
            self._hidden.put_back()
            self._plugins = None

    def _hide(self) -> None:
        if self._plugins is None:
            plugins = self._plugins = _Plugins(self._worker.plugins, self._plugin)
            places = iter((plugins, plugins.others))
            self._hidden.put(PLUGINS, self._worker, lambda _: next(places))


class _Plugins(dict[str, Any]):
    """A worker's plugins, of which its state machine sees all but one."""

    def __init__(self, plugins: dict[str, Any], hidden: Any) -> None:
        super().__init__(plugins)
        self._all = plugins
        self._hidden = hidden
        self.others: dict[str, Any] = {}
        self._follow()

    def _follow(self) -> None:
        for copy in (self._all, self.others):
            copy.clear()
            copy.update(self)
        for name in [name for name, plugin in self.others.items() if plugin is self._hidden]:
            del self.others[name]

    def show(self) -> None:
        """Let the state machine see all of them."""
        self._hidden = None
        self._follow()

    def __setitem__(self, name: str, plugin: Any) -> None:
        super().__setitem__(name, plugin)
        self._follow()

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._follow()

    def pop(self, name: str, *default: Any) -> Any:
        plugin = super().pop(name, *default)
        self._follow()
        return plugin


def matters(start: str, finish: str) -> bool:
    """Whether a transition may change who holds a slot, or why a slot is free.

    A task that becomes ready does not: it runs in this very stimulus, or no slot is free.
    """
    return finish != "ready" and (finish == "waiting" or start not in _QUIET or finish not in _QUIET)


@cache
def noted(start: str, finish: str) -> bool:
    """Whether a transition may mean something for a trace, beside what it does to slots."""
    return (
        finish in ("ready", "waiting", "fetch", "flight")
        or start == "flight"
        or start in MAYBE_IN_FLIGHT
        or (start in WITHOUT_SLOT and finish not in ("executing", "constrained"))
        or (start in ("fetch", "missing") and finish == "released")
    )


def _chosen(hook: Hook, note: Hook | None) -> Callable[..., None]:
    """A plugin's hook, which is called for every transition."""

    def transition(key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if note is not None and noted(start, finish):
            note(key, start, finish)
        if matters(start, finish):
            hook(key, start, finish)

    return transition


class _Hooks:
    """The hooks of all workers of the process for one kind of transition, in upstream's table while there are any."""

    def __init__(self, wanted: Callable[[str, str], bool]) -> None:
        self._wanted = wanted
        #: By the identity of a worker's state.
        self._hooks: dict[int, Hook] = {}
        self._table = Replacements()

    def follow(self, state: WorkerState, hook: Hook | None) -> bool:
        """Call this for one worker from now on, or nothing; False where that is not possible."""
        if hook is None:
            self._hooks.pop(id(state), None)
            if not self._hooks:
                self._table.put_back()
            return True
        if not self._hooks and not self._table.put(TRANSITIONS, WorkerState, self._followed):
            return False
        self._hooks[id(state)] = hook
        return True

    def _followed(self, table: Mapping[tuple[str, str], Callable[..., Any]]) -> dict[tuple[str, str], Any]:
        return {
            (start, finish): _with_hook(self._hooks, function, start, finish)
            if self._wanted(start, finish)
            else function
            for (start, finish), function in table.items()
        }


def _with_hook(hooks: Mapping[int, Hook], function: Callable[..., Any], start: str, finish: str) -> Callable[..., Any]:
    def transition(state: Any, ts: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(state, ts, *args, **kwargs)
        hook = hooks.get(id(state))
        if hook is not None:
            hook(ts.key, start, finish)
        return result

    return transition


_of_slots = _Hooks(matters)
_of_traces = _Hooks(noted)
