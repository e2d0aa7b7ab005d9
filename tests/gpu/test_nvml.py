import subprocess
import sys
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.sensors import READINGS
from dask_efficiency.gpu.nvml import Nvml

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


class Error(Exception): ...


class NotSupported(Error): ...


class InvalidArgument(Error): ...


class Unknown(Error): ...


def raising(error: type[Error]) -> Callable[..., Any]:
    def fail(*_: Any) -> None:
        raise error

    return fail


class FakeNvml(ModuleType):
    """As much of nvidia-ml-py as is used, for a device that has everything."""

    NVMLError, NVMLError_NotSupported, NVMLError_InvalidArgument = Error, NotSupported, InvalidArgument
    NVMLError_FunctionNotFound = type("FunctionNotFound", (Error,), {})
    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU, NVML_VOLATILE_ECC, NVML_FEATURE_ENABLED = 1, 0, 0, 1
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139
    NVML_SUCCESS, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 0, 3
    NVML_NVLINK_MAX_LINKS, NVML_NVLINK_ERROR_COUNT = 18, 5

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.kibibytes = {138: 5_000, 139: 7_000}
        self.shut_down = False
        answers: dict[str, Any] = {
            "ClockInfo": 1410,
            "MaxClockInfo": 1980,
            "Temperature": 61,
            "PowerUsage": 312_500,
            "EnforcedPowerLimit": 700_000,
            "MemoryInfo": SimpleNamespace(used=10**9, total=80 * 10**9),
            "UtilizationRates": SimpleNamespace(gpu=37),
            "CurrPcieLinkGeneration": 4,
            "MaxPcieLinkGeneration": 5,
            "CurrPcieLinkWidth": 8,
            "MaxPcieLinkWidth": 16,
            "PcieReplayCounter": 2,
            "CurrentClocksEventReasons": 0,
        }
        for name, answer in answers.items():
            self.answer(name, lambda *_, answer=answer: answer)
        self.answer("HandleByUUID", lambda uuid: "handle" if uuid.decode() == UUID else raising(Unknown)())
        self.answer("TotalEccErrors", lambda handle, kind, counter: 3 + kind)
        self.answer("PcieThroughput", lambda handle, counter: 300 + counter)
        self.answer("NvLinkState", lambda handle, link: int(link < 2) if link < 6 else raising(InvalidArgument)())
        self.answer("NvLinkErrorCounter", lambda handle, link, counter: 1 if counter < 4 else raising(NotSupported)())
        self.answer("FieldValues", self.field_values)

    def answer(self, name: str, function: Callable[..., Any]) -> None:
        setattr(self, f"nvmlDeviceGet{name}", function)

    def field_values(self, handle: str, fields: list[tuple[int, int]]) -> list[Any]:
        assert all(links == 0xFFFFFFFF for _, links in fields)
        values = [SimpleNamespace(ullVal=self.kibibytes[field]) for field, _ in fields]
        return [SimpleNamespace(nvmlReturn=0, valueType=3, value=value) for value in values]

    def nvmlInit(self) -> None: ...  # noqa: N802

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shut_down = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    module = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_every_reading_has_its_agreed_name_and_unit(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch):
    nvml = Nvml([UUID])
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    nvml.read()
    fake.kibibytes = {138: 5_004, 139: 7_010}
    monkeypatch.setattr(time, "monotonic", lambda: 102.0)
    (readings,) = nvml.read().values()
    assert readings == {
        "sm_clock_hertz": 1.41e9,
        "sm_clock_max_hertz": 1.98e9,
        "temperature_celsius": 61,
        "power_watts": 312.5,
        "power_limit_watts": 700,
        "memory_used_bytes": 10**9,
        "memory_total_bytes": 80 * 10**9,
        "utilisation_ratio": 0.37,
        "ecc_corrected_errors_total": 3,
        "ecc_uncorrected_errors_total": 4,
        "pcie_link_generation": 4,
        "pcie_link_generation_max": 5,
        "pcie_link_width": 8,
        "pcie_link_width_max": 16,
        "pcie_replays_total": 2,
        "nvlink_errors_total": 8,
        "pcie_received_bytes_per_second": 301_000,
        "pcie_sent_bytes_per_second": 300_000,
        "nvlink_received_bytes_per_second": 5 * 1024,
        "nvlink_sent_bytes_per_second": 2 * 1024,
        "throttle_reasons": 0,
        "throttled_thermal": 0,
        "throttled_power": 0,
    }
    assert set(readings) == set(READINGS)
    nvml.close()
    assert fake.shut_down


@pytest.mark.parametrize("function", ["CurrentClocksEventReasons", "CurrentClocksThrottleReasons"])  # older modules
@pytest.mark.parametrize(
    ("reasons", "thermal", "power"),
    [(0x20, 1, 0), (0x40, 1, 0), (0x04, 0, 1), (0x80, 0, 1), (0x01, 0, 0), (0x64, 1, 1)],
)
def test_reasons_for_a_lower_clock_are_distinguished(
    fake: FakeNvml, function: str, reasons: int, thermal: int, power: int
):
    del fake.nvmlDeviceGetCurrentClocksEventReasons
    fake.answer(function, lambda handle: reasons)
    readings = Nvml([UUID]).read()[UUID]
    names = ("throttle_reasons", "throttled_thermal", "throttled_power")
    assert [readings[name] for name in names] == [reasons, thermal, power]


def test_readings_that_a_device_lacks_are_left_out_and_not_tried_again(fake: FakeNvml):
    asked = []

    def refuse(handle: str, *_: Any) -> None:
        asked.append(handle)
        raise NotSupported

    fake.answer("TotalEccErrors", refuse)
    fake.answer("NvLinkState", refuse)
    nvml = Nvml([UUID])
    nvml.read()  # rates are of the time between two readings
    lacking = {f"{name}_errors_total" for name in ("ecc_corrected", "ecc_uncorrected", "nvlink")}
    for _ in range(2):
        assert set(READINGS) - set(nvml.read()[UUID]) == lacking
    assert len(asked) == 3


def test_a_reading_that_fails_once_is_tried_again(fake: FakeNvml):
    nvml = Nvml([UUID])
    power = fake.nvmlDeviceGetPowerUsage
    fake.answer("PowerUsage", raising(Unknown))
    assert "power_watts" not in nvml.read()[UUID]
    fake.answer("PowerUsage", power)
    assert "power_watts" in nvml.read()[UUID]


def test_links_that_are_down_or_count_nothing_have_no_readings(fake: FakeNvml):
    fake.answer("NvLinkState", lambda handle, link: 0)
    nothing = SimpleNamespace(nvmlReturn=3, valueType=0, value=SimpleNamespace(ullVal=0))
    fake.answer("FieldValues", lambda handle, fields: [nothing] * len(fields))
    nvml = Nvml([UUID])
    nvml.read()
    assert not any(name.startswith("nvlink_") for name in nvml.read()[UUID])


def test_a_device_that_nvml_does_not_know_is_left_out(fake: FakeNvml):
    assert Nvml(["GPU-other"]).read() == {}


def test_pcie_links_of_many_devices_are_not_read(fake: FakeNvml):
    fake.answer("HandleByUUID", lambda uuid: uuid)
    uuids = [f"GPU-{i}" for i in range(3)]
    assert all("pcie_sent_bytes_per_second" in row for row in Nvml(uuids[:2]).read().values())
    assert not any("pcie_sent_bytes_per_second" in row for row in Nvml(uuids).read().values())


def test_the_real_module_without_a_driver_gives_the_reason_and_crashes_nothing():
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    program = """
from dask_efficiency.gpu.nvml import Nvml
import pynvml
try:
    readings = Nvml([]).read()
except RuntimeError as error:
    assert "NVML does not start" in str(error)
else:
    assert readings == {}
for name in ("NVML_NVLINK_ERROR_COUNT", "NVML_NVLINK_MAX_LINKS", "NVML_FEATURE_ENABLED", "NVML_CLOCK_SM"):
    getattr(pynvml, name)
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=250, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
