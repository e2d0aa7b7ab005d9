"""Profilers: which profiler of torch's is at work in this process, ours or the user's, so that they keep apart."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from dask_efficiency.show.log import logger

#: The module whose functions start and stop every profiler of torch's.
_MODULE = "torch.autograd.profiler"

#: Its functions that begin a profile, and the one that ends it.
_PREPARE, _ENABLE, _DISABLE = "_prepare_profiler", "_enable_profiler", "_disable_profiler"

#: A profiler of the user's that begins in another thread waits so long at most for ours to end.
MAX_WAIT_SECONDS = 10.0

GAVE_UP = "a torch.profiler of the user's own could not wait"


class NotProfiled(RuntimeError):
    """There is no profile of this work; the text says why, for a report."""


class Profile(Protocol):
    """A profile of ours."""

    #: Whether a profiler of the user's could not wait for it any more. It must not be stopped then.
    abandoned: bool

    @property
    def ident(self) -> int:
        """Of the thread that it is of, as :func:`threading.get_ident`."""

    def stop(self) -> None:
        """End it, in its own thread; safe to call twice."""


class Profilers:
    """Knows which profiler of torch's is at work in this process, ours or the user's, and keeps them apart.

    While it is held it replaces three functions in torch's module.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: Taken before the other one, and for long: an event loop holds and releases, and must not wait for it.
        self._entering = threading.Lock()
        self._holders = 0
        self._module: Any = None
        #: What stands in torch's module, and what stood there before, by name.
        self._placed: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
        #: The only one of ours, while it begins, runs and ends; the second is known while it runs.
        self._entered: Profile | None = None
        self._present: Profile | None = None
        #: The thread in which one of ours begins or ends: what torch's functions are called for there is ours.
        self._calling: int | None = None
        self._left = threading.Event()
        self._left.set()
        #: Whether the user's own has been prepared, or is at work.
        self._users = False
        #: Why there is no profile in this process any more.
        self._never: str | None = None

    # -- when there may be profiles ----------------------------------------------------------

    def hold(self) -> None:
        """There may be profiles from now on."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """Whoever held it wants no profile any more."""
        with self._lock:
            self._holders -= 1
            self._put_back_unless_used()

    @contextmanager
    def resting(self) -> Iterator[bool]:
        """Whether none of ours is at work; if so, none begins in the block."""
        with self._entering:
            yield self._entered is None

    def _place(self) -> None:
        module = sys.modules.get(_MODULE)
        torch = sys.modules.get("torch")
        # While another thread imports it, its modules are there before what is in them.
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
        """Put torch's functions back, but for those that somebody has replaced since.

        While the user's own is at work they stay: else nobody would hear of its end.
        """
        if self._holders or self._entered is not None or self._users:
            return
        for name, (wrapper, original) in self._placed.items():
            if getattr(self._module, name, None) is wrapper:
                setattr(self._module, name, original)
        self._placed.clear()

    # -- ours --------------------------------------------------------------------------------

    def enter(self, profile: Profile) -> None:
        """One of ours is about to begin in this thread; raises NotProfiled if it may not."""
        with self._entering, self._lock:
            if self._never is not None:
                raise NotProfiled(self._never)
            if self._entered is not None:
                raise NotProfiled("another task was being profiled")
            self._place()
            self._entered = profile
            self._left.clear()
        # The user's says that it comes before it looks for ours, and ours before it looks for the user's: so they never
        # miss each other.
        if self._users or getattr(self._module, "_is_profiler_enabled", False):
            self.leave(profile)
            raise NotProfiled("a torch.profiler of the user's own was at work")
        self._calling = threading.get_ident()

    def began(self, profile: Profile) -> None:
        """It has begun."""
        self._present, self._calling = profile, None

    def ends(self, profile: Profile) -> None:
        """It is about to end, in its thread."""
        with self._lock:
            self._present, self._calling = None, profile.ident

    def leave(self, profile: Profile) -> None:
        """It has ended, or not begun."""
        with self._lock:
            if self._entered is profile:
                self._entered = self._present = self._calling = None
                self._left.set()
                self._put_back_unless_used()

    # -- the user's --------------------------------------------------------------------------

    def _beginning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*args: Any, **kwargs: Any) -> Any:
            # Nothing is placed any more where somebody who came after it goes on calling this.
            if self._calling == threading.get_ident() or not self._placed:
                return original(*args, **kwargs)
            self._users = True
            try:
                self._make_room()
            except Exception:
                logger.exception("a profile of dask_efficiency's could not give way to a torch.profiler")
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
        """The user's own is about to begin: ours ends before, in this thread, or is waited for in another."""
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
            if profile is None:  # it is ending, which does not take long
                return
            # To stop it after the user's would crash the process. Its thread goes on with a profile that nobody will
            # read, and torch would refuse another one there.
            profile.abandoned = True
            self._never = GAVE_UP
        logger.warning(
            "dask_efficiency profiles no task of this process any more: a torch.profiler was started in another thread "
            "while a profiled task ran for %g s more",
            MAX_WAIT_SECONDS,
        )


#: Of this process. Whoever wants profiles holds it as long as that.
PROFILERS = Profilers()
