"""Termination: what is left to do in a process that a batch system, a container or a terminal tells to end.

Python dies of SIGTERM and SIGHUP at once, without any cleanup. A process that waits for a moment here dies of the same
signal, so whoever sent it sees no difference; a second signal ends it at once, and so does the end of its patience,
whatever it is doing then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from dask_efficiency.show.figures import format_seconds

#: Signals that end a process which does not handle them, where the system has them.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
#: Seconds until the process ends in any case: Docker kills after 10, SLURM and Kubernetes after 30.
PATIENCE = 8.0

#: Exit code of a process whose time is over, as of timeout(1).
TIMED_OUT = 124
#: What to do: gets the signal's name, and a function to call when it is done.
LastWords = Callable[[str, Callable[[], None]], None]


def before_termination(do: LastWords) -> None:
    """Have a function called before this process dies of a signal that nobody handles or ignores.

    Processes that it forks die at once. Outside the main thread nothing is changed.
    """

    def restore() -> None:
        for number in SIGNALS:
            if signal.getsignal(number) is terminated:
                signal.signal(number, signal.SIG_DFL)

    def terminated(number: int, _frame: FrameType | None) -> None:
        restore()
        signal.signal(number, signal.SIG_DFL)  # also where the script's own handler calls this one

        def die() -> None:
            os.kill(os.getpid(), number)

        late = threading.Timer(PATIENCE, die)
        late.daemon = True
        late.start()
        do(signal.Signals(number).name, die)

    if threading.current_thread() is not threading.main_thread():
        return
    for number in SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, terminated)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=restore)


def after(seconds: float, do: LastWords) -> None:
    """Have a function called once this process is so old, and end it then, whatever its main thread waits for.

    It ends also where the function fails.
    """

    def die() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # closed, or nobody reads it
                stream.flush()
        os._exit(TIMED_OUT)

    def end() -> None:
        try:
            do(f"timeout: {format_seconds(seconds)}", die)
        except BaseException:
            with suppress(Exception):
                traceback.print_exc()
            die()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def handled_error() -> object:
    """Error that the main thread handles at this moment, such as one that leaves a block; None without any."""
    handled = sys._current_exceptions().get(threading.main_thread().ident or 0)
    return handled[1] if isinstance(handled, tuple) else handled  # Python 3.11 has its kind and traceback beside it
