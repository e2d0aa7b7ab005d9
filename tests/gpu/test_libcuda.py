from pathlib import Path
from types import ModuleType

import pytest

from dask_efficiency.gpu import libcuda
from tests.gpu.conftest import stub, stub_directory

__all__ = ["stub", "stub_directory"]


def test_devices_are_told_as_the_driver_has_them(stub: ModuleType, stub_directory: Path):
    stub.load(stub_directory, devices=2, contexts=True, schedule=stub.BLOCK)
    driver = libcuda.loaded_driver()
    assert driver is not None
    first, second = libcuda.devices(driver)
    assert first == (0, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "Stub GPU 0", True, False)
    assert second.uuid.startswith("GPU-10111213")
    assert libcuda.driver_major(driver) == 13


def test_an_instance_of_a_divided_device_has_its_own_kind_of_uuid(stub: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f")
    driver = libcuda.loaded_driver()
    assert driver is not None
    assert libcuda.devices(driver)[0].uuid == "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_a_driver_that_nobody_has_initialised_is_in_no_use(stub: ModuleType):
    driver = libcuda.loaded_driver()
    assert driver is not None
    assert libcuda.in_use(driver)
    stub.cuda.stub_devices(1, 0, 0)
    assert not libcuda.in_use(driver)
    stub.cuda.stub_devices(0, 0, 0)
    assert not libcuda.in_use(driver)
    assert libcuda.devices(driver) == []
