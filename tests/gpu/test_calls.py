"""The calls that matter, picked by number in the package and by name here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dask_efficiency.gpu import calls
from tests.gpu.cupti_headers import header, numbers

__all__ = ["header"]

#: What a function does, by the first pattern that its name matches, without its variant and version.
PATTERNS = [
    (calls.ASKS, r"(__)?cu(da)?Launch(Cooperative)?Kernel(Ex|ExC|MultiDevice)?|cu(da)?GraphLaunch"),
    (calls.ASKS, r"cu(da)?Memcpy\w*Async"),
    # fills return at once, but for pinned memory
    (calls.ASKS, r"cudaMemset(2D|3D)?(Async)?|cuMemset(D2)?D\d+(Async)?"),
    (calls.COPIES, r"cu(da)?Memcpy\w*"),
    (calls.WAITS, r"cu(da)?(Thread|Stream|Event|Device|Ctx|ExecutionCtx)Synchronize|cudaFree|cuMemFree"),
    (calls.BEGINS_GRAPH, r"cu(da)?StreamBeginCapture(ToGraph)?"),
    (calls.ENDS_GRAPH, r"cu(da)?StreamEndCapture"),
]
VARIANT = r"(_v\d+)?(_pt[sd][sz])?$"


def expected(names: dict[int, str]) -> dict[int, int]:
    found, bases = {}, {re.sub(r"_v\d+", "", name) for name in names.values() if re.search(r"_v\d", name)}
    # there never was another one with 32-bit addresses
    bases.discard("cuMemcpy")
    for number, name in names.items():
        if name.startswith("cu64") or name == "cuMemcpy_v2":
            continue
        # the first version of a driver's function, with 32-bit addresses
        if re.sub(r"_pt[sd][sz]$", "", name) in bases and not re.search(r"_v\d|Ctx|Prefetch|Capture|Batch", name):
            continue
        base = re.sub(VARIANT, "", name)
        what = next((what for what, pattern in PATTERNS if re.fullmatch(pattern, base)), None)
        if what is not None:
            found[number] = what
    return found


@pytest.mark.parametrize(
    ("api", "table"), [("runtime", calls.RUNTIME_TABLE), ("driver", calls.DRIVER_TABLE)], ids=["runtime", "driver"]
)
def test_the_numbers_are_those_of_the_header(header: Path, api: str, table: object) -> None:
    names = numbers(header, api)
    found = {number: int(what) for number, what in enumerate(table) if what and number in names}  # type: ignore[arg-type]
    differences = {number: names[number] for number in found.keys() ^ expected(names).keys()}
    assert not differences
    assert found == expected(names)


def test_what_pytorch_calls_is_there() -> None:
    launches = {211, 430, 311, 214, 431, 312}
    assert launches <= set(calls.RUNTIME_ASKS)
    assert {131, 137, 165} <= set(calls.RUNTIME_WAITS)
    assert {41, 51} <= set(calls.RUNTIME_ASKS)


def test_what_triton_and_cupy_call_is_there() -> None:
    assert {307, 652, 514} <= set(calls.DRIVER_ASKS)
    assert {126, 121, 17} <= set(calls.DRIVER_WAITS)


def test_no_call_is_of_two_kinds_and_none_is_0() -> None:
    assert calls.RUNTIME_TABLE[0] == calls.DRIVER_TABLE[0] == 0
    assert calls.RUNTIME_TABLE[-1] == calls.DRIVER_TABLE[-1] == 0
    kinds = [calls.RUNTIME_ASKS, calls.RUNTIME_COPIES, calls.RUNTIME_WAITS]
    assert sum(map(len, kinds)) == len(frozenset().union(*kinds))
