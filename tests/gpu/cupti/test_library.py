import ctypes
import subprocess
import sys
from glob import glob
from pathlib import Path
from types import ModuleType

import pytest

from dask_efficiency.gpu.cupti import library
from dask_efficiency.gpu.cupti.library import Cupti, CuptiError

REAL = sorted(glob("/usr/local/cuda*/**/libcupti.so.[0-9]*", recursive=True))


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_loaded", lambda: None)
    monkeypatch.setattr(sys, "path", [])
    for variable in (library.VARIABLE, "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)


def installed(directory: Path, name: str) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).touch()
    return str(directory / name)


def test_what_the_process_has_already_goes_before_all_else(
    stub: ModuleType, stub_directory: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(library.VARIABLE, "/somewhere/else")
    assert library.find() == str(stub_directory / "libcupti.so.13")


@pytest.mark.usefixtures("nothing_loaded")
def test_the_variable_goes_before_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    installed(tmp_path / "lib", "libcupti.so.13")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv(library.VARIABLE, "/unusual/libcupti.so")
    assert library.find() == "/unusual/libcupti.so"


@pytest.mark.usefixtures("nothing_loaded")
def test_the_newest_that_the_driver_can_run_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    older = installed(tmp_path / "nvidia" / "cuda_cupti" / "lib", "libcupti.so.12")
    newer = installed(tmp_path / "nvidia" / "cu13" / "lib", "libcupti.so.13")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert library.find() == newer
    assert library.find(newest=13) == newer
    assert library.find(newest=12) == older
    assert library.find(newest=11) is None


@pytest.mark.usefixtures("nothing_loaded")
def test_a_toolkit_is_found_where_it_keeps_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = installed(tmp_path / "extras" / "CUPTI" / "lib64", "libcupti.so.12")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert library.find() == path


@pytest.mark.usefixtures("nothing_loaded")
def test_where_there_is_none_none_is_found():
    assert library.find() is None


def test_sizes_of_records_are_the_distances_between_them(stub: ModuleType):
    records = bytearray(216 + 40 + 96 + 40)
    for at, kind in ((0, 10), (216, 5), (256, 1), (352, 5)):
        records[at] = kind
    place = (ctypes.c_uint8 * len(records)).from_buffer(records)
    cupti = Cupti(stub.cupti._name)
    assert cupti.sizes(ctypes.addressof(place), len(records)) == {10: 216, 5: 40, 1: 96}


def test_a_function_that_a_library_lacks_is_an_error_that_names_it():
    with pytest.raises(CuptiError, match="no such function"):
        Cupti("libc.so.6").flush()


@pytest.mark.skipif(not REAL, reason="there is no libcupti of NVIDIA's on this machine")
def test_nvidias_library_without_a_driver_refuses_and_crashes_nothing():
    program = f"""
from dask_efficiency.gpu.cupti.library import Cupti, CuptiError
cupti = Cupti({(REAL or [""])[-1]!r})
print(cupti.version >= 18, cupti.timestamp() > 0)
for step in (cupti.probe, lambda: cupti.enable(10), cupti.flush, lambda: cupti.disable(10)):
    try:
        step()
    except CuptiError as error:
        print(error)
print(cupti.enable_call(5, 211), cupti.dropped())
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=250, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("True True\n")
