"""Calls that launch work or wait, picked by number in the package and by name here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    ("table", "effect", "numbers"),
    [
        (calls.RUNTIME_TABLE, calls.ASKS, {211, 430, 311, 214, 431, 312, 41, 51}),  # PyTorch's
        (calls.RUNTIME_TABLE, calls.WAITS, {131, 137, 165}),
        (calls.DRIVER_TABLE, calls.ASKS, {307, 652, 514}),  # Triton's and CuPy's
        (calls.DRIVER_TABLE, calls.WAITS, {126, 121, 17}),
        (calls.RUNTIME_TABLE, 0, {0, len(calls.RUNTIME_TABLE) - 1}),  # the last stands for all higher numbers
        (calls.DRIVER_TABLE, 0, {0, len(calls.DRIVER_TABLE) - 1}),
    ],
)
def test_the_calls_of_common_frameworks_have_their_effects(table: Any, effect: int, numbers: set[int]) -> None:
    assert {int(table[number]) for number in numbers} == {effect}
