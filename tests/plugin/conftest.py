from __future__ import annotations

from collections.abc import Iterator

import pytest

from dask_efficiency.plugin.thread_clocks import HeldReader


@pytest.fixture
def reader() -> Iterator[HeldReader]:
    reader = HeldReader()
    yield reader
    reader.close()
