"""Workload: a user's own function or script, timed."""

from __future__ import annotations

import time
from typing import Any

from dask_efficiency.preflights.hardware.measured import REPEATS, least_seconds

#: What a workload may be.
CALLABLE, SCRIPT = "callable", "script"


def run(kind: str, payload: bytes, repeats: int = REPEATS) -> dict[str, Any]:
    """Seconds of a workload: of the best of three runs, if one takes less than two seconds.

    Parameters
    ----------
    kind
        ``callable`` or ``script``.
    payload
        The function as cloudpickle wrote it, or the source of the script. It comes from the client, as tasks do.
    """
    if kind == CALLABLE:
        import cloudpickle

        function = cloudpickle.loads(payload)
    else:
        code = compile(payload, "<workload>", "exec")

        def function() -> None:
            try:
                exec(code, {"__name__": "__main__"})
            except SystemExit as end:
                if end.code:
                    raise

    def once() -> float:
        began = time.perf_counter()
        function()
        return time.perf_counter() - began

    return least_seconds(once, repeats)
