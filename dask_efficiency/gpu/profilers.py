"""Profilers: keeps our profiles and the user's own ``torch.profiler`` apart; torch runs one at a time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from dask_efficiency.show.log import logger

#: Module whose functions start and stop every profiler of torch.
_MODULE = "torch.autograd.profiler"
#: Functions that begin a profile, and the one that ends it.
_PREPARE, _ENABLE, _DISABLE = "_prepare_profiler", "_enable_profiler", "_disable_profiler"
#: Longest wait of a user's profiler in another thread for ours to end, seconds. A guess.
MAX_WAIT_SECONDS = 10.0

GAVE_UP = "a torch.profiler of the user's own could not wait"


class NotProfiled(RuntimeError):
    """The work was not profiled; the text gives the reason, for a report."""


class RunningProfile(Protocol):
    """Profile of ours, from its beginning to its end."""

    #: :func:`threading.get_ident` of its thread.
    ident: int
    #: True once a user's profiler stopped waiting for it. It must not be stopped then.
    abandoned: bool

    def stop(self) -> None:
        """End it, in its own thread; safe to call twice."""


class Profilers:
    """Tracks the profiler that is at work in this process, ours or the user's.

    While it is held, it replaces three functions in torch's module.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: Taken before ``_lock``, and for long: hold() and release() run on event loops and must not wait for it.
        self._entering = threading.Lock()
        self._holders = 0
        self._module: Any = None
        #: By name: our function in torch's module, and the original.
        self._placed: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
        #: Our only profile: from entering to leaving, and while it runs.
        self._entered: RunningProfile | None = None
        self._present: RunningProfile | None = None
        #: Thread in which ours begins or ends: calls of torch's functions there are ours.
        self._calling: int | None = None
        self._left = threading.Event()
        self._left.set()
        #: True while the user's profiler is prepared or at work.
        self._users = False
        #: Reason why this process makes no more profiles; None while it may.
        self._never: str | None = None

    def hold(self) -> None:
        """Allow profiles from now on."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """End one holder's interest in profiles."""
        with self._lock:
            self._holders -= 1
            self._put_back_unless_used()

    @contextmanager
    def resting(self) -> Iterator[bool]:
        """Yield True if none of ours is at work; then none begins in the block."""
        with self._entering:
            yield self._entered is None

    def _place(self) -> None:
        module = sys.modules.get(_MODULE)
        torch = sys.modules.get("torch")
        # While another thread imports torch, its modules exist before their content.
        importing = getattr(getattr(torch, "__spec__", None), "_initializing", False)
        if torch is None or importing or module is None or "torch.profiler" not in sys.modules:
            raise NotProfiled("torch was not imported yet")
        if self._placed:
            return
        self._module = module
        try:
            originals = {name: getattr(module, name) for name in (_PREPARE, _ENABLE, _DISABLE)}
        except AttributeError as error:
            raise NotProfiled(f"this version of torch has another profiler ({error})") from error
        for name, original in originals.items():
            wrapper = self._ending(original) if name == _DISABLE else self._beginning(original)
            self._placed[name] = wrapper, original
            setattr(module, name, wrapper)

    def _put_back_unless_used(self) -> None:
        """Put torch's functions back, except those that somebody has replaced since.

        While the user's profiler is at work they stay: else its end would go unnoticed.
        """
        if self._holders or self._entered is not None or self._users:
            return
        for name, (wrapper, original) in self._placed.items():
            if getattr(self._module, name, None) is wrapper:
                setattr(self._module, name, original)
        self._placed.clear()

    def enter(self, profile: RunningProfile) -> None:
        """Enter a profile of ours that is about to begin in this thread; raises NotProfiled if it may not."""
        with self._entering, self._lock:
            if self._never is not None:
                raise NotProfiled(self._never)
            if self._entered is not None:
                raise NotProfiled("another task was being profiled")
            self._place()
            self._entered = profile
            self._left.clear()
        # The user's profiler announces itself before it looks for ours, and ours before it looks for the user's: so
        # they never miss each other.
        if self._users or getattr(self._module, "_is_profiler_enabled", False):
            self.leave(profile)
            raise NotProfiled("a torch.profiler of the user's own was at work")
        self._calling = threading.get_ident()

    def began(self, profile: RunningProfile) -> None:
        """Note that it has begun."""
        self._present, self._calling = profile, None

    def ends(self, profile: RunningProfile) -> None:
        """Note that it is about to end, in its thread."""
        with self._lock:
            self._present, self._calling = None, profile.ident

    def leave(self, profile: RunningProfile) -> None:
        """Note that it has ended, or did not begin."""
        with self._lock:
            if self._entered is profile:
                self._entered = self._present = self._calling = None
                self._left.set()
                self._put_back_unless_used()

    def _beginning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*args: Any, **kwargs: Any) -> Any:
            # After ours were put back, somebody who wrapped them may still call this.
            if self._calling == threading.get_ident() or not self._placed:
                return original(*args, **kwargs)
            self._users = True
            try:
                self._make_room()
            except Exception:
                logger.exception("a profile of dask_efficiency could not give way to a torch.profiler")
            try:
                return original(*args, **kwargs)
            except BaseException:
                self._users_ended()
                raise

        return begin

    def _ending(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def end(*args: Any, **kwargs: Any) -> Any:
            ours = self._calling == threading.get_ident()
            try:
                return original(*args, **kwargs)
            finally:
                if not ours:
                    self._users_ended()

        return end

    def _users_ended(self) -> None:
        self._users = False
        with self._lock:
            self._put_back_unless_used()

    def _make_room(self) -> None:
        """End ours before the user's profiler begins: stop it in this thread, or wait for it in another."""
        profile = self._present
        if profile is not None and profile.ident == threading.get_ident():
            profile.stop()
            return
        if self._never is not None:
            return
        if self._left.wait(MAX_WAIT_SECONDS):
            return
        with self._lock:
            profile = self._present
            if profile is None:  # it is ending, which is quick
                return
            # Stopping it after the user's would crash the process. Its thread goes on with a profile that nobody reads,
            # and torch would refuse another one there.
            profile.abandoned = True
            self._never = GAVE_UP
        logger.warning(
            "dask_efficiency no longer profiles tasks of this process: a torch.profiler was started in another thread "
            "while a profiled task ran for %g s more",
            MAX_WAIT_SECONDS,
        )


#: Of this process; held by whoever wants profiles.
PROFILERS = Profilers()
