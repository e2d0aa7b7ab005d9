"""Transitions: calls a worker's meter for those transitions of its tasks that matter to it, and for no others."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from dask_efficiency.plugin.patches import PLUGINS, TRANSITIONS, Replacements

if TYPE_CHECKING:
    from distributed import Worker


class Hooks(Protocol):
    """What is called in the middle of a stimulus; none of it may raise."""

    def taken(self, ts: Any) -> object:
        """A task became ``executing``."""

    def succeeded(self, ts: Any) -> object:
        """A task went from ``executing`` to ``memory``."""

    def transition(self, key: Any, start: str, finish: str) -> object:
        """Any other one that :func:`matters`."""

    def every_transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> object:
        """Any one at all, as Dask calls a plugin's hook."""


#: Between two of these states nothing moves that matters to slots.
_QUIET = frozenset({"memory", "released", "forgotten", "fetch", "flight", "missing", "error"})

#: States of a task that was received and has no slot.
WITHOUT_SLOT = frozenset({"waiting", "ready", "constrained"})

#: States in which a task may be in flight, beside ``flight`` itself.
MAYBE_IN_FLIGHT = frozenset({"cancelled", "resumed"})

_Function: TypeAlias = Callable[..., Any]
_Table: TypeAlias = dict[tuple[str, str], _Function]

#: Called with a task's key, and the states that it left and came to; it must not raise.
Note = Callable[[Any, str, str], object]


class _Called:
    """What the functions of one table call; nothing any more once it is put back."""

    __slots__ = ("hooks", "note")

    def __init__(self, hooks: Hooks, note: Note | None) -> None:
        self.hooks: Hooks | None = hooks
        self.note = note


class Transitions:
    """Has upstream call a hook for one worker's tasks.

    A plugin is called for every transition of every task, and upstream alone takes some 3,400 instructions a call: six
    of them are 0.4 % of a task that does nothing. So the worker's state is given a table of transitions of its own, and
    does not see this plugin among the others. Where this is not possible, the hook is the plugin's own.

    Parameters
    ----------
    worker
        The worker.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._plugin: Any = None
        self._called: _Called | None = None
        self._class = Replacements()
        #: What stands in the place of its plugins, while the state machine does not see this one.
        self._plugins: _Plugins | None = None
        self._hidden = Replacements()

    @property
    def attached(self) -> bool:
        """Whether anything is called."""
        return self._plugin is not None

    def attach(self, plugin: Any, hooks: Hooks, *, note: Note | None) -> None:
        """Call these from now on, for the plugin that they belong to.

        ``note``, if there is one, is called for each transition that is :func:`noted`. Where nothing else is possible,
        ``every_transition`` is called, and nothing else.
        """
        if plugin is not self._plugin:
            self.detach()
            self._plugin = plugin
        if self._follow(hooks, note):
            vars(plugin).pop("transition", None)
            self._hide()
        else:
            self._show()
            plugin.transition = hooks.every_transition

    def detach(self) -> None:
        """Call nothing more; upstream is as it was. Safe to call twice."""
        self._unfollow()
        self._show()
        if self._plugin is not None:
            vars(self._plugin).pop("transition", None)
            self._plugin = None

    def _follow(self, hooks: Hooks, note: Note | None) -> bool:
        if self._called is not None and self._called.note == note:
            self._called.hooks = hooks
            return True
        self._unfollow()
        called = _Called(hooks, note)
        state = self._worker.state
        if _as_known(type(state)) and self._class.put(TRANSITIONS, state, lambda of_state: _followed(of_state, called)):
            self._called = called
        return self._called is not None

    def _unfollow(self) -> None:
        self._class.put_back()
        if self._called is not None:  # somebody else may have put another class over it, and go on calling it
            self._called.hooks = self._called.note = None
            self._called = None

    def _hide(self) -> None:
        if self._plugins is None:
            plugins = self._plugins = _Plugins(self._worker.plugins, self._plugin)
            places = iter((plugins, plugins.others))
            self._hidden.put(PLUGINS, self._worker, lambda _: next(places))

    def _show(self) -> None:
        if self._plugins is not None:
            self._plugins.show()
            self._hidden.put_back()
            self._plugins = None


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

    # Upstream uses none of these, users might.

    def popitem(self) -> tuple[str, Any]:
        item = super().popitem()
        self._follow()
        return item

    def setdefault(self, name: str, plugin: Any = None, /) -> Any:
        found = super().setdefault(name, plugin)
        self._follow()
        return found

    def update(self, *others: Any, **plugins: Any) -> None:
        super().update(*others, **plugins)
        self._follow()

    def __ior__(self, other: Any) -> _Plugins:  # type: ignore[override, misc]
        self.update(other)
        return self

    def clear(self) -> None:
        super().clear()
        self._follow()


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


def _as_known(of_state: type) -> bool:
    """Whether upstream's state machine has a table of functions, and passes on what those below take."""
    transition = getattr(of_state, "_transition", None)
    return (
        hasattr(of_state, "_TRANSITIONS_TABLE")
        and transition is not None
        and [*inspect.signature(transition).parameters][-2:] == ["args", "stimulus_id"]
    )


def _followed(of_state: type, called: _Called) -> type:
    """The same class of states with another table: a state has no attributes but those of its class."""
    table: _Table = of_state._TRANSITIONS_TABLE  # type: ignore[attr-defined]
    followed = dict(table)
    for (start, finish), function in table.items():
        if matters(start, finish):
            followed[start, finish] = _with_hook(function, start, finish, called)
        if called.note is not None and noted(start, finish):
            followed[start, finish] = _with_note(followed[start, finish], start, finish, called)
    names = {"__slots__": (), "__module__": of_state.__module__, "_TRANSITIONS_TABLE": followed}
    return type(of_state.__name__, (of_state,), names)


# Most of these functions are given no further arguments. To pass on any that may come, by position and by name, takes
# 3,000 instructions, four times as many as to pass on none.


def _with_note(function: _Function, start: str, finish: str, called: _Called) -> _Function:
    def transition(state: Any, ts: Any, *args: Any, stimulus_id: Any) -> Any:
        if args:
            result = function(state, ts, *args, stimulus_id=stimulus_id)
        else:
            result = function(state, ts, stimulus_id=stimulus_id)
        if called.note is not None:
            called.note(ts.key, start, finish)
        return result

    return transition


def _with_hook(function: _Function, start: str, finish: str, called: _Called) -> _Function:
    if finish == "executing":

        def followed(state: Any, ts: Any, *args: Any, stimulus_id: Any) -> Any:
            if args:
                result = function(state, ts, *args, stimulus_id=stimulus_id)
            else:
                result = function(state, ts, stimulus_id=stimulus_id)
            if called.hooks is not None:
                called.hooks.taken(ts)
            return result

    elif (start, finish) == ("executing", "memory"):

        def followed(state: Any, ts: Any, *args: Any, stimulus_id: Any) -> Any:
            if len(args) == 2:  # the result, and of which run
                result = function(state, ts, args[0], args[1], stimulus_id=stimulus_id)
            else:
                result = function(state, ts, *args, stimulus_id=stimulus_id)
            if called.hooks is not None:
                called.hooks.succeeded(ts)
            return result

    elif start == "released":

        def followed(state: Any, ts: Any, *args: Any, stimulus_id: Any) -> Any:
            if args:
                result = function(state, ts, *args, stimulus_id=stimulus_id)
            else:
                result = function(state, ts, stimulus_id=stimulus_id)
            if ts.waiting_for_data and called.hooks is not None:  # else it will be ready in this very stimulus
                called.hooks.transition(ts.key, start, finish)
            return result

    else:

        def followed(state: Any, ts: Any, *args: Any, stimulus_id: Any) -> Any:
            result = function(state, ts, *args, stimulus_id=stimulus_id)
            if called.hooks is not None:
                called.hooks.transition(ts.key, start, finish)
            return result

    return followed
