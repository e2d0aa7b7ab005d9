"""The patches for Dask are short, and each is on its page."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PATCHES = sorted((DOCS / "upstream").glob("*.patch"))


def test_the_page_lists_all_upstream_patches() -> None:
    listed = re.findall(r"\(upstream/(\w+\.patch)\)", (DOCS / "upstream.md").read_text("utf-8"))
    assert sorted(listed) == [patch.name for patch in PATCHES]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_each_upstream_patch_is_short_and_has_a_test(patch: Path) -> None:
    lines = patch.read_text("utf-8").splitlines()
    assert len(lines) <= 60
    assert any(re.match(r"\+async def test_|\+def test_", line) for line in lines)
