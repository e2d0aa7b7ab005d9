"""The environment of a run: versions, sizes of workers, and the settings that bear on efficiency."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import dask
import distributed
from dask.utils import format_bytes
from distributed.versions import get_versions

from dask_efficiency.accounts.intake import fitting
from dask_efficiency.plugin.commit import checked_out
from dask_efficiency.plugin.version import __version__


def _names(**sections: str) -> tuple[str, ...]:
    """Names of settings, by section with ``_`` for a dot."""
    return tuple(f"{section.replace('_', '.')}.{name}" for section, names in sections.items() for name in names.split())


#: Settings of the scheduler's process that every report shows; workers may run with others.
SHOWN = _names(
    distributed_worker_memory="target spill pause terminate",
    distributed_scheduler="worker-saturation work-stealing allowed-failures",
    distributed_comm="compression",
)
#: Settings of the scheduler's process that a report shows if they differ from Dask's defaults. Listed one by one, as
#: anything else in the configuration may be a secret.
SHOWN_IF_CHANGED = _names(
    distributed_scheduler="active-memory-manager.start bandwidth default-data-size idle-timeout rootish-taskgroup "
    "rootish-taskgroup-dependencies unknown-task-duration validate work-stealing-interval worker-ttl",
    distributed_worker="connections.incoming connections.outgoing lifetime.duration memory.max-spill "
    "memory.recent-to-old-time memory.spill-compression memory.transfer profile.enabled profile.interval "
    "transfer.message-bytes-limit validate",
    distributed_nanny="pre-spawn-environ.MALLOC_TRIM_THRESHOLD_ pre-spawn-environ.MKL_NUM_THREADS "
    "pre-spawn-environ.OMP_NUM_THREADS pre-spawn-environ.OPENBLAS_NUM_THREADS",
    distributed_comm="offload retry.count shard",
    distributed_p2p="comm.buffer comm.concurrency storage.buffer storage.disk threads",
)
#: Settings of the client's process, where graphs are made, shown if they differ from Dask's defaults.
SHOWN_IF_CHANGED_BY_CLIENT = _names(
    array="chunk-size query-planning rechunk.method rechunk.threshold slicing.split-large-chunks",
    dataframe="backend convert-string query-planning shuffle.compression shuffle.method",
    optimization="fuse.active fuse.ave-width tune.active",
    distributed_client="direct-to-workers",
)
#: Characters of a setting's value that are shown. A guess: nothing depends on it.
VALUE_LENGTH = 60

_MISSING = object()


def of_cluster(workers: Iterable[Any], clients: Iterable[Any]) -> dict[str, str]:
    """Environment of the scheduler and of its states of workers and of clients, by name."""
    workers = list(workers)
    return {
        "dask-efficiency": __version__,
        "dask": dask.__version__,
        "distributed": distributed.__version__,
        "python": platform.python_version(),
        **_other_versions("workers", workers),
        **_other_versions("clients", clients),
        "workers": str(len(workers)),
        "threads": str(sum(ws.nthreads for ws in workers)),
        "threads of a worker": _range([ws.nthreads for ws in workers], str),
        "memory limit of a worker": _range([ws.memory_limit for ws in workers], format_bytes),
        **settings(SHOWN),
        **settings(SHOWN_IF_CHANGED, changed_only=True),
    }


def of_client() -> dict[str, str]:
    """Settings of this process, as a client, that differ from Dask's defaults; and the commit of its code."""
    return settings(SHOWN_IF_CHANGED_BY_CLIENT, changed_only=True) | checked_out()


def settings(names: Iterable[str], *, changed_only: bool = False) -> dict[str, str]:
    """Values of this process's Dask configuration by name, with the default if they differ from it."""
    defaults = dask.config.merge(*dask.config.defaults)
    shown = {}
    for name in names:
        value = dask.config.get(name, _MISSING)
        default = dask.config.get(name, _MISSING, config=defaults)
        if value is not _MISSING and (value != default or not changed_only):
            changed = value != default and default is not _MISSING
            shown[name] = f"{value!s:.{VALUE_LENGTH}}" + (f" (default {default})" if changed else "")
    return shown


def _range(values: list[int], text: Any) -> str:
    return " to ".join(text(value) for value in sorted({min(values), max(values)})) if values else "-"


def _other_versions(who: str, states: Iterable[Any]) -> dict[str, str]:
    """Versions of packages that differ from the scheduler's, with counts."""
    mine: Mapping[str, Any] = get_versions()["packages"]
    found: dict[str, Counter[str]] = {}
    for state in states:
        theirs: Any = state.versions.get("packages") if isinstance(state.versions, Mapping) else None
        for package, version in mine.items() if isinstance(theirs, Mapping) else ():
            if theirs.get(package) != version:
                found.setdefault(package, Counter())[fitting(theirs.get(package), 20)] += 1
    return {
        f"{package} on {who}": f"{', '.join(f'{v} ({n})' for v, n in counts.most_common(3))}; scheduler {mine[package]}"
        for package, counts in found.items()
    }
