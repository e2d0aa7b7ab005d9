from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.plugin.worker import actor_state as module
from dask_efficiency.plugin.worker.actor_state import state_by_class


class Sized:
    def __init__(self, nbytes: Any) -> None:
        self.nbytes = nbytes

    def __sizeof__(self) -> int:
        if self.nbytes is None:
            raise ValueError("unknown")
        return int(self.nbytes)


def test_the_state_of_actors_is_that_of_their_attributes_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MEASURED", 3)
    monkeypatch.setattr(module, "sizeof", lambda value: value.__sizeof__())
    band = SimpleNamespace(a=Sized(10), b=Sized(5), c=Sized(None))
    actors = {"Band-0a1b2c3d": band, "Band-1a2b3c4d": SimpleNamespace(a=Sized(4)), "Log-1a2b3c4d": object()}
    assert state_by_class(actors | {"More-1a2b3c4d": band}) == {"Band": 19, "Log": 0}
