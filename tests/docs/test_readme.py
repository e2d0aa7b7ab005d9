from dask_efficiency import Bucket
from tests.docs.markdown import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_fits_in_150_lines():
    assert len(README.splitlines()) <= 150


def test_every_bucket_is_in_the_table():
    for bucket in Bucket:
        assert f"| `{bucket}` |" in README
