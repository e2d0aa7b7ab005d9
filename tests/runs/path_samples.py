"""Critical paths for the tests of what is shown of them."""

from dataclasses import replace

from dask_efficiency import CriticalPath, critical_path
from tests.report.samples import HOSTILE_NAMES
from tests.simulated_traces import transfer_bound, tree


def transfers() -> CriticalPath:
    """Make the path of a run that mostly waited for transfers."""
    return critical_path(transfer_bound())


def hostile() -> CriticalPath:
    """Make the path of a run in which every name that a user chooses is hostile."""
    trace = tree(len(HOSTILE_NAMES))
    prefixes = trace.tasks.prefix.copy()
    prefixes[:] = [i % len(HOSTILE_NAMES) for i in range(len(prefixes))]
    return critical_path(
        replace(
            trace,
            name=HOSTILE_NAMES[0],
            prefixes=HOSTILE_NAMES,
            tasks=replace(trace.tasks, prefix=prefixes),
            workers=tuple(replace(w, name=n, host=n) for w, n in zip(trace.workers, HOSTILE_NAMES[3:], strict=False)),
            notes=HOSTILE_NAMES,
            dropped={HOSTILE_NAMES[1]: 3},
        )
    )
