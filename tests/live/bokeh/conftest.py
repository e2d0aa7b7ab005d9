from typing import Any

import pytest

from dask_efficiency.live.bokeh import tab as tab_module
from dask_efficiency.live.bokeh.tab import Tab


class NoTimer:
    """In place of a periodic callback, where there is no event loop."""

    def __init__(self, *args: Any) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch) -> Tab:
    monkeypatch.setattr(tab_module, "PeriodicCallback", NoTimer)
    return Tab({"pages": ["status"], "plots": [{"url": "individual-zebra", "name": "Zebra"}]})
