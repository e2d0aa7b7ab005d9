"""Layout: where the activity records of each version of CUPTI have the fields that are needed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: ``CUpti_ActivityKind``, which the first four bytes of every record hold; the same in all versions.
MEMCPY, MEMSET, DRIVER, RUNTIME, CONCURRENT_KERNEL = 1, 2, 4, 5, 10

#: Offsets in bytes. ``CUpti_ActivityKernel9`` (CUDA 12.0) to ``CUpti_ActivityKernel13`` (13.4) only grew at the end,
#: and so did memcpy and memset: tests/gpu/test_layouts.py has the figures of the headers of CUDA 12.1 to 13.5.
KERNEL_OFFSETS: Mapping[str, int] = {
    "start": 16,
    "end": 24,
    "deviceId": 40,
    "streamId": 48,
    "correlationId": 92,
    "name": 104,
}
COPY_OFFSETS: Mapping[str, int] = {"start": 16, "end": 24, "deviceId": 32, "streamId": 40, "correlationId": 44}
CALL_OFFSETS: Mapping[str, int] = {
    "cbid": 4,
    "start": 8,
    "end": 16,
    "threadId": 28,
    "correlationId": 32,
    "returnValue": 36,
}


@dataclass(frozen=True, slots=True)
class Layout:
    """The records of one version of CUPTI: their sizes in bytes; the offsets above hold for all of them."""

    #: The header's name for the record of a kernel, for looking it up.
    kernel_record: str
    kernel: int
    memcpy: int
    memset: int
    call: int = 40

    @property
    def sizes(self) -> Mapping[int, int]:
        """Bytes of a record, by kind."""
        return {
            MEMCPY: self.memcpy,
            MEMSET: self.memset,
            DRIVER: self.call,
            RUNTIME: self.call,
            CONCURRENT_KERNEL: self.kernel,
        }


_CUDA_12_1 = Layout("CUpti_ActivityKernel9", kernel=208, memcpy=88, memset=88)
_CUDA_12_8 = Layout("CUpti_ActivityKernel9", kernel=208, memcpy=96, memset=88)
_CUDA_13_0 = Layout("CUpti_ActivityKernel10", kernel=216, memcpy=96, memset=88)
_CUDA_13_1 = Layout("CUpti_ActivityKernel11", kernel=224, memcpy=96, memset=88)
_CUDA_13_3 = Layout("CUpti_ActivityKernel12", kernel=232, memcpy=96, memset=88)
_CUDA_13_4 = Layout("CUpti_ActivityKernel13", kernel=248, memcpy=112, memset=104)

#: By ``CUPTI_API_VERSION``, which counted releases up to CUDA 12.9. It is 18 for CUDA 11.8 as for 12.1; kernels of 11.8
#: have the same offsets in records that are 8 bytes shorter, which is why sizes that CUPTI shows go before these.
_COUNTED: Mapping[int, Layout] = {
    **dict.fromkeys((18, 20, 21, 22, 23, 24), _CUDA_12_1),
    **dict.fromkeys((26, 27, 28), _CUDA_12_8),
}
#: From CUDA 13.0 on it is made of major, minor and patch, two digits each. Patches have not changed a layout.
_DATED: Mapping[int, Layout] = {
    1300: _CUDA_13_0,
    1301: _CUDA_13_1,
    1302: _CUDA_13_1,
    1303: _CUDA_13_3,
    1304: _CUDA_13_4,
    1305: _CUDA_13_4,
}


def layout_for(version: int) -> Layout | None:
    """The layout of a version of CUPTI.

    Parameters
    ----------
    version
        As ``cuptiGetVersion`` gives it: 18 is CUDA 12.1, 28 the first update of 12.9, 130001 that of 13.0.

    Returns
    -------
    Layout or None
        None for a version whose header has not been checked: a guess could take a kernel's grid for its time.
    """
    return _COUNTED.get(version) or _DATED.get(version // 100)
