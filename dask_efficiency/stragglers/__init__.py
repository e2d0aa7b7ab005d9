"""Stragglers: workers that take longer than their peers for the same work.

``dask_efficiency.stragglers(client)`` gives those of now: the package itself can be called, so that the name means the
same wherever it is imported from.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, client: Any = None) -> Any:
        """The stragglers of now: see :func:`dask_efficiency.plugins.client.stragglers_now`."""
        # By name, as of all that the package gives: what is below does not import what is above.
        return importlib.import_module("dask_efficiency.plugins.client").stragglers_now(client)


sys.modules[__name__].__class__ = _CallablePackage
