from __future__ import annotations

import ctypes
import subprocess
import sys
from glob import glob
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.gpu.cupti import library
from dask_efficiency.gpu.cupti.library import STEP_NS, ClockPair, Cupti, CuptiError, RecordClock

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


def test_a_loaded_library_takes_precedence(stub: ModuleType, stub_directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(library.VARIABLE, "/somewhere/else")
    assert library.find() == str(stub_directory / "libcupti.so.13")


@pytest.mark.usefixtures("nothing_loaded")
def test_the_variable_takes_precedence_over_installed_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
def test_the_library_of_a_toolkit_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert library.find() is None
    path = installed(tmp_path / "extras" / "CUPTI" / "lib64", "libcupti.so.12")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert library.find() == path


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


WALL = 1_795_000_000_000_000_000
SECOND = 1_000_000_000


def test_the_wall_clock_is_converted_to_the_nanosecond_by_its_distance():
    clock = RecordClock(ClockPair(WALL, 100), wall=WALL + 5)
    assert clock.monotonic(np.array([WALL - 7, WALL + SECOND], np.int64)).tolist() == [93, 100 + SECOND]
    assert not clock.read(ClockPair(WALL + SECOND, 100 + SECOND + 30))  # a small drift
    assert clock.monotonic(np.array([WALL + SECOND - 1], np.int64)).tolist() == [100 + SECOND + 29]


@pytest.mark.parametrize("step", [-3600 * SECOND, -2 * STEP_NS, 2 * STEP_NS, 86400 * SECOND])
def test_a_wall_clock_that_was_set_is_noticed_once(step: int):
    clock = RecordClock(ClockPair(WALL, 0), wall=WALL)
    assert clock.read(ClockPair(WALL + SECOND + step, SECOND))
    assert not clock.read(ClockPair(WALL + 2 * SECOND + step, 2 * SECOND))
    assert clock.monotonic(np.array([WALL + step], np.int64)).tolist() == [0]


@given(
    st.floats(0.2, 6), st.integers(0, 2**60), st.lists(st.integers(SECOND // 10, 10 * SECOND), min_size=2, max_size=9)
)
def test_a_counter_of_ticks_is_converted_whatever_its_rate(ticks: float, begin: int, pauses: list[int]):
    clock = RecordClock(ClockPair(begin, 50), wall=WALL)
    passed = 0
    for pause in pauses:
        passed += pause
        assert not clock.read(ClockPair(begin + round(passed * ticks), 50 + passed))
    middle = passed // 2
    (found,) = clock.monotonic(np.array([begin + round(middle * ticks)], np.int64)).tolist()
    assert abs(found - (50 + middle)) < 1000


def test_a_counter_of_ticks_that_jumps_is_noticed():
    clock = RecordClock(ClockPair(0, 0), wall=WALL)
    clock.read(ClockPair(3 * SECOND, SECOND))
    assert clock.read(ClockPair(3_600 * SECOND, 2 * SECOND))
    assert not clock.read(ClockPair(3_603 * SECOND, 3 * SECOND))
