"""Layouts against the figures of headers, and against the headers that are here."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_efficiency.gpu import layouts
from dask_efficiency.gpu.layouts import CALL_OFFSETS, COPY_OFFSETS, KERNEL_OFFSETS, layout_for
from tests.gpu.cupti_headers import KINDS, header, measured

__all__ = ["header"]

#: CUPTI_API_VERSION, the release whose header says so, and there sizeof of the newest kernel, memcpy, memset and API
#: records, as gcc 12 has them on x86-64.
FIGURES = [
    (18, "12.1.105", "CUpti_ActivityKernel9", 208, 88, 88, 40),
    (20, "12.2.142", "CUpti_ActivityKernel9", 208, 88, 88, 40),
    (21, "12.3.101", "CUpti_ActivityKernel9", 208, 88, 88, 40),
    (22, "12.4.127", "CUpti_ActivityKernel9", 208, 88, 88, 40),
    (23, "12.5.82", "CUpti_ActivityKernel9", 208, 88, 88, 40),
    (24, "12.6.80", "CUpti_ActivityKernel9", 208, 88, 88, 40),
    (26, "12.8.90", "CUpti_ActivityKernel9", 208, 96, 88, 40),
    (27, "12.9.19", "CUpti_ActivityKernel9", 208, 96, 88, 40),
    (28, "12.9.79", "CUpti_ActivityKernel9", 208, 96, 88, 40),
    (130000, "13.0.48", "CUpti_ActivityKernel10", 216, 96, 88, 40),
    (130101, "13.1.115", "CUpti_ActivityKernel11", 224, 96, 88, 40),
    (130202, "13.2.86", "CUpti_ActivityKernel11", 224, 96, 88, 40),
    (130301, "13.3.75", "CUpti_ActivityKernel12", 232, 96, 88, 40),
    (130401, "13.4.92", "CUpti_ActivityKernel13", 248, 112, 104, 40),
    (130500, "13.5.25", "CUpti_ActivityKernel13", 248, 112, 104, 40),
]


@pytest.mark.parametrize(("version", "release", "record", "kernel", "memcpy", "memset", "call"), FIGURES)
def test_a_layout_has_the_figures_of_its_header(
    version: int, release: str, record: str, kernel: int, memcpy: int, memset: int, call: int
) -> None:
    layout = layout_for(version)
    assert layout is not None, release
    assert (layout.kernel_record, layout.kernel, layout.memcpy, layout.memset, layout.call) == (
        record,
        kernel,
        memcpy,
        memset,
        call,
    )


@pytest.mark.parametrize("version", [0, 17, 19, 25, 29, 1300, 120000, 130600, 140000])
def test_a_version_that_nobody_has_looked_at_has_no_layout(version: int) -> None:
    assert layout_for(version) is None


def test_every_size_is_that_of_its_kind() -> None:
    layout = layout_for(130401)
    assert layout is not None
    assert layout.sizes == {10: 248, 1: 112, 2: 104, 4: 40, 5: 40}


def test_a_header_that_is_here_agrees(header: Path, tmp_path: Path) -> None:
    found = measured(header, tmp_path)
    layout = layout_for(int(found["version"]))
    assert layout is not None, f"no layout for {header}, version {found['version']}"
    assert layout.kernel_record == found["record"]
    assert (layout.kernel, layout.memcpy, layout.memset, layout.call) == tuple(
        found[stem] for stem in ("Kernel", "Memcpy", "Memset", "API")
    )
    for stem, offsets in (
        ("Kernel", KERNEL_OFFSETS),
        ("Memcpy", COPY_OFFSETS),
        ("Memset", COPY_OFFSETS),
        ("API", CALL_OFFSETS),
    ):
        assert offsets == {field: found[f"{stem}.{field}"] for field in offsets}
    assert [getattr(layouts, kind) for kind in KINDS] == [found[kind] for kind in KINDS]
