"""Version of the package, which scheduler and workers must share, and the distributed that it needs."""

from __future__ import annotations

import re

__version__ = "0.1.0"
#: Oldest release of distributed that this package is tested with.
OLDEST_DISTRIBUTED = (2026, 1)


def check_distributed(version: str) -> None:
    """Raise ImportError if this release of distributed is too old."""
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST_DISTRIBUTED:
        raise ImportError(f"dask_efficiency needs distributed 2026.1.0 or later; found {version}")
