from dask_efficiency import Bucket
from tests.docs.markdown import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_fits_in_150_lines_and_has_every_bucket_in_its_table():
    assert len(README.splitlines()) <= 150
    for bucket in Bucket:
        assert f"| `{bucket}` |" in README
