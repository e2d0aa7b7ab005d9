# ruff: noqa: N802 - the names are those of nvidia-ml-py
import subprocess
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.sensors import READINGS
from dask_efficiency.gpu.nvml import Nvml

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


class Error(Exception):
    pass


class NotSupported(Error):
    pass


class InvalidArgument(Error):
    pass


class Unknown(Error):
    pass


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
        self.reasons = 0
        self.kibibytes = {138: 5_000, 139: 7_000}
        self.asked: list[str] = []
        self.shut_down = False

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None:
        self.shut_down = True

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:
        if uuid.decode() != UUID:
            raise Unknown
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        return 1410

    def nvmlDeviceGetMaxClockInfo(self, handle: str, clock: int) -> int:
        return 1980

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 61

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 312_500

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 700_000

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(used=10**9, total=80 * 10**9)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=37)

    def nvmlDeviceGetTotalEccErrors(self, handle: str, kind: int, counter: int) -> int:
        return 3 + kind

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: str) -> int:
        return 4

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: str) -> int:
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: str) -> int:
        return 8

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: str) -> int:
        return 16

    def nvmlDeviceGetPcieReplayCounter(self, handle: str) -> int:
        return 2

    def nvmlDeviceGetPcieThroughput(self, handle: str, counter: int) -> int:
        return 300 + counter

    def nvmlDeviceGetFieldValues(self, handle: str, fields: list[tuple[int, int]]) -> list[Any]:
        assert all(links == 0xFFFFFFFF for _, links in fields)
        return [
            SimpleNamespace(nvmlReturn=0, valueType=3, value=SimpleNamespace(ullVal=self.kibibytes[field]))
            for field, _ in fields
        ]

    def nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:
        if link >= 6:
            raise InvalidArgument
        return int(link < 2)

    def nvmlDeviceGetNvLinkErrorCounter(self, handle: str, link: int, counter: int) -> int:
        if counter == 4:
            raise NotSupported
        return 1

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        return self.reasons


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


@pytest.mark.parametrize(
    ("reasons", "thermal", "power"),
    [(0x20, 1, 0), (0x40, 1, 0), (0x04, 0, 1), (0x80, 0, 1), (0x01, 0, 0), (0x64, 1, 1)],
)
def test_reasons_for_a_lower_clock_are_told_apart(fake: FakeNvml, reasons: int, thermal: int, power: int):
    fake.reasons = reasons
    readings = Nvml([UUID]).read()[UUID]
    assert (readings["throttle_reasons"], readings["throttled_thermal"], readings["throttled_power"]) == (
        reasons,
        thermal,
        power,
    )


def test_what_a_device_lacks_is_left_out_and_not_asked_for_again(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch):
    asked = []

    def refuse(self: FakeNvml, handle: str, *_: Any) -> None:
        asked.append(handle)
        raise NotSupported

    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetTotalEccErrors", refuse)
    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetNvLinkState", refuse)
    nvml = Nvml([UUID])
    nvml.read()  # rates are of the time between two readings
    for _ in range(2):
        readings = nvml.read()[UUID]
        assert set(READINGS) - set(readings) == {
            "ecc_corrected_errors_total",
            "ecc_uncorrected_errors_total",
            "nvlink_errors_total",
        }
    assert len(asked) == 3


def test_what_fails_once_is_asked_for_again(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch):
    def fail(self: FakeNvml, handle: str) -> None:
        raise Unknown

    nvml = Nvml([UUID])
    with monkeypatch.context() as patch:
        patch.setattr(FakeNvml, "nvmlDeviceGetPowerUsage", fail)
        assert "power_watts" not in nvml.read()[UUID]
    assert "power_watts" in nvml.read()[UUID]


def test_links_that_are_down_say_nothing_of_errors(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetNvLinkState", lambda self, handle, link: 0)
    assert "nvlink_errors_total" not in Nvml([UUID]).read()[UUID]


def test_a_device_that_nvml_does_not_know_is_left_out(fake: FakeNvml):
    assert Nvml(["GPU-other"]).read() == {}


def test_older_modules_have_older_names(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(FakeNvml, "nvmlDeviceGetCurrentClocksEventReasons")
    fake.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x40  # type: ignore[attr-defined]
    assert Nvml([UUID]).read()[UUID]["throttled_thermal"] == 1


def test_closing_leaves_nvml(fake: FakeNvml):
    Nvml([UUID]).close()
    assert fake.shut_down


def test_the_real_module_without_a_driver_says_so_and_crashes_nothing():
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


def test_links_that_count_nothing_have_no_rate(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch):
    def refused(self: FakeNvml, handle: str, fields: list[tuple[int, int]]) -> list[Any]:
        return [SimpleNamespace(nvmlReturn=3, valueType=0, value=SimpleNamespace(ullVal=0)) for _ in fields]

    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetFieldValues", refused)
    nvml = Nvml([UUID])
    nvml.read()
    assert not any(name.startswith("nvlink_") and name.endswith("second") for name in nvml.read()[UUID])


def test_of_many_devices_nobody_waits_for_their_pcie_links(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetHandleByUUID", lambda self, uuid: uuid)
    uuids = [f"GPU-{i}" for i in range(3)]
    assert all("pcie_sent_bytes_per_second" in row for row in Nvml(uuids[:2]).read().values())
    assert not any("pcie_sent_bytes_per_second" in row for row in Nvml(uuids).read().values())
