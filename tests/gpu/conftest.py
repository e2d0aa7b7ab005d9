"""The stub of a GPU for tests: compiled once, and begun anew for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dask_efficiency.gpu.cupti.build import SOURCE, CannotCompile, compile_callbacks
from dask_efficiency.gpu.cupti.callbacks import LIBRARY
from tests.gpu import stub_gpu as module

_built: list[Path] = []


def compile_callbacks_in_place() -> None:
    """As an editable installation does, where the library is missing or older than its source; else skip the test."""
    if LIBRARY.exists() and LIBRARY.stat().st_mtime >= SOURCE.stat().st_mtime:
        return
    try:
        compile_callbacks(LIBRARY)
    except CannotCompile as reason:
        pytest.skip(f"the callbacks of CUPTI cannot be compiled: {reason}")


@pytest.fixture(scope="session")
def stub_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stub's libraries are, for processes of a test."""
    if module.COMPILER is None:
        pytest.skip("no C compiler here to make the stub of CUPTI with; on Debian: apt-get install gcc")
    compile_callbacks_in_place()
    # This fixture is imported by other folders' conftests, and a process has room for one libcuda.
    if not _built:
        _built.append(module.build(tmp_path_factory.mktemp("stub")))
    return _built[0]


@pytest.fixture
def stub(stub_directory: Path) -> Iterator[ModuleType]:
    """The stub in this process, with one device; nothing is to be measured when the test is over."""
    module.load(stub_directory)
    yield module
    module.cupti.stub_reset()
    module.cuda.stub_devices(0, 0, 0)
