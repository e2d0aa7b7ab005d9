from __future__ import annotations

import sys

import pytest

from dask_efficiency.plugin.wings import OFFERED, offered


@pytest.mark.parametrize("name", OFFERED)
def test_a_wing_without_its_folder_offers_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wing = OFFERED[name].split(".")[1]
    for module in [module for module in sys.modules if module.startswith(f"dask_efficiency.{wing}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [Without(wing), *sys.meta_path])
    assert offered(name) is None


class Without:
    """Finds nothing of one wing, as if its folder were not there."""

    def __init__(self, wing: str) -> None:
        self._wing = f"dask_efficiency.{wing}"

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self._wing or name.startswith(f"{self._wing}."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
