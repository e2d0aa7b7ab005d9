import importlib
import re
from pathlib import Path

import pytest

import dask_efficiency
from dask_efficiency import Bucket
from dask_efficiency.accounts.buckets import CAUSES
from dask_efficiency.plugin.options import OPTIONS
from tests.docs.markdown import PAGES, ROOT, anchors, links
from tests.test_public_names import FOLDERS

DOCS = ROOT / "docs"


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_table_of_options_is_the_one_in_the_code():
    for name, option in OPTIONS.items():
        key = f"efficiency.{name.replace('_', '-')}"
        assert f"| `{name}` | `{key}` | `{option.default}` | {option.meaning} |" in text("options.md")


@pytest.mark.parametrize("bucket", [Bucket.THREAD_NONCPU, Bucket.IDLE])
def test_the_table_of_a_bucket_s_causes_is_the_one_in_the_code(bucket):
    table = text("waiting.md").split(f"| cause of `{bucket}` |")[1].split("\n\n")[0]
    assert tuple(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == CAUSES[bucket]


def test_every_bucket_has_a_section_of_its_own():
    assert set(Bucket) <= set(anchors(text("buckets.md")))


def test_the_api_reference_has_every_public_name():
    names = re.findall(r"^\.\. auto\w+:: dask_efficiency\.([\w.]+)$", text("api.md"), flags=re.MULTILINE)
    public = {*dask_efficiency.__all__} - {"__version__"}
    for folder in FOLDERS:
        public |= {f"{folder}.{name}" for name in importlib.import_module(f"dask_efficiency.{folder}").__all__}
    assert public <= set(names)
    assert len(names) == len(set(names))


def test_every_page_is_in_the_table_of_contents():
    listed = re.findall(r"^([\w/-]+)$", text("index.md"), flags=re.MULTILINE)
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES if page.is_relative_to(DOCS)}
    assert sorted(listed) == sorted(pages - {"index"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_somewhere(page):
    for path, anchor in links(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_a_page_names_exists(page):
    for name in re.findall(r"`([\w/]+(?:/|\.py))`", page.read_text(encoding="utf-8")):
        assert any((folder / name).exists() for folder in (ROOT, ROOT / "dask_efficiency", DOCS)), name


def test_every_picture_is_shown_on_a_page():
    shown = {
        (page.parent / path).resolve() for page in PAGES for path, _ in links(page.read_text(encoding="utf-8")) if path
    }
    assert {picture.resolve() for picture in Path(DOCS / "images").iterdir()} <= shown
