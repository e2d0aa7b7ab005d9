from ctypes import CDLL
from pathlib import Path
from types import ModuleType

import pytest

from dask_efficiency.gpu import libcuda
from tests.gpu.conftest import stub, stub_directory

__all__ = ["stub", "stub_directory"]


@pytest.fixture
def driver(stub: ModuleType) -> CDLL:
    driver = libcuda.loaded_driver()
    assert driver is not None
    return driver


def test_devices_are_those_of_the_driver(stub: ModuleType, stub_directory: Path, driver: CDLL):
    stub.load(stub_directory, devices=2, contexts=True, schedule=stub.BLOCK)
    first, second = libcuda.devices(driver)
    assert first == (0, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "Stub GPU 0", True, False)
    assert second.uuid.startswith("GPU-10111213")
    assert libcuda.driver_major(driver) == 13


def test_an_instance_of_a_divided_device_has_its_own_kind_of_uuid(driver: CDLL, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert libcuda.devices(driver)[0].uuid == "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_a_driver_without_a_context_or_a_device_is_not_in_use(stub: ModuleType, driver: CDLL):
    assert libcuda.in_use(driver)
    for count in (1, 0):
        stub.cuda.stub_devices(count, 0, 0)
        assert not libcuda.in_use(driver)
    assert libcuda.devices(driver) == []
