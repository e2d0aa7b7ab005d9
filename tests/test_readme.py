from pathlib import Path

from dask_efficiency import Bucket
from dask_efficiency.plugins.options import OPTIONS

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_table_of_options_is_the_one_in_the_code():
    for name, option in OPTIONS.items():
        key = f"efficiency.{name.replace('_', '-')}"
        assert f"| `{name}` | `{key}` | `{option.default}` | {option.meaning} |" in README


def test_every_bucket_is_explained():
    for bucket in Bucket:
        assert f"| `{bucket}` |" in README
