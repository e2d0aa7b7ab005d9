"""KinetoWatch: notices when torch.profiler is about to use CUPTI, and when it has ended."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from dask_efficiency.show.log import logger

#: The functions that ``torch.autograd.profiler`` calls before a trace begins and when it ends. The first one registers
#: Kineto's buffers with CUPTI, which serves one client at a time.
_PREPARE, _DISABLE = "_prepare_profiler", "_disable_profiler"

#: The other way of ``torch.profiler`` to watch CUDA, which registers its own buffers and clock.
_MONITOR = "torch.profiler._cupti_monitor"


class KinetoWatch:
    """Calls a function before Kineto takes over CUPTI, in the thread that starts the profiler.

    It replaces the two functions in torch's module, and :meth:`close` puts them back.

    Parameters
    ----------
    about_to
        The function, which takes no arguments. What it raises is logged, and the profiler goes on.
    """

    def __init__(self, about_to: Callable[[], object]) -> None:
        self._about_to = about_to
        self._prepared = False
        #: Whether a profile without CUDA runs, so that torch's flag is no sign of Kineto using CUPTI.
        self._harmless = False
        self._module: Any = sys.modules.get("torch.autograd.profiler")
        self._originals: dict[str, Any] = {name: getattr(self._module, name, None) for name in (_PREPARE, _DISABLE)}
        self._wrappers = {_PREPARE: self._prepare, _DISABLE: self._disable}
        for name, original in self._originals.items():
            if original is not None:
                setattr(self._module, name, self._wrappers[name])

    @property
    def running(self) -> bool:
        """Whether Kineto has CUPTI, or is about to."""
        enabled = bool(getattr(self._module, "_is_profiler_enabled", False)) and not self._harmless
        return self._prepared or enabled

    @property
    def monitored(self) -> bool:
        """Whether torch's own CUPTI monitor is running."""
        monitor = getattr(sys.modules.get(_MONITOR), "get_monitor", None)
        return monitor is not None and monitor() is not None

    def close(self) -> None:
        """Put torch's functions back, unless somebody has replaced them since."""
        for name, original in self._originals.items():
            if original is not None and getattr(self._module, name, None) == self._wrappers[name]:
                setattr(self._module, name, original)

    def _prepare(self, config: Any, activities: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            self._harmless = not _uses_cuda(activities)
            if not self._harmless:
                self._prepared = True
                self._about_to()
        except Exception:
            logger.exception("the GPU meter could not give way to torch.profiler")
        return self._originals[_PREPARE](config, activities, *args, **kwargs)

    def _disable(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._originals[_DISABLE](*args, **kwargs)
        finally:
            self._prepared = self._harmless = False


def _uses_cuda(activities: Any) -> bool:
    """Whether the activities of a profile include CUDA; True if that cannot be found out."""
    try:
        return any("CUDA" in str(activity).upper() for activity in activities)
    except TypeError:
        return True
