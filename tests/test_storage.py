from __future__ import annotations

import gzip
import os
from pathlib import Path

import fsspec
import pytest

from dask_efficiency.storage import check_target, writing


def test_what_was_written_stands_in_its_place_after_the_block(tmp_path: Path) -> None:
    with writing(tmp_path / "a") as file:
        file.write(b"one")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"one"


@pytest.mark.parametrize("place", ["{}/a", "file://{}/a", "memory://{}/a"])
def test_an_error_in_the_block_leaves_the_old_content_and_nothing_beside_it(tmp_path: Path, place: str) -> None:
    path = place.format(tmp_path)
    with writing(path) as file:
        file.write(b"old")
    with pytest.raises(TypeError, match="bytes"), writing(path) as file:
        file.writelines([b"new", 0])  # type: ignore[list-item]
    with fsspec.open(path, "rb") as file:
        assert file.read() == b"old"
    assert os.listdir(tmp_path) in (["a"], [])


def test_a_name_in_gz_is_compressed_when_asked_to_infer(tmp_path: Path) -> None:
    with writing(tmp_path / "a.gz", compression="infer") as file:
        file.write(b"text")
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"text"
    with writing(tmp_path / "b.gz") as file:
        file.write(b"text")
    assert (tmp_path / "b.gz").read_bytes() == b"text"


def test_the_error_about_a_missing_folder_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing/a"), writing(tmp_path / "missing" / "a"):
        pass


def test_a_url_gets_its_options() -> None:
    with writing("memory://storage/a", skip_instance_cache=True) as file:
        file.write(b"1")
    assert fsspec.filesystem("memory").cat("/storage/a") == b"1"


def test_a_path_that_cannot_be_written_is_known_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in (tmp_path / "new", f"file://{tmp_path}/new", "/dev/null", "memory://nowhere/new"):
        check_target(target)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        check_target(tmp_path / "none" / "new")
    with pytest.raises(IsADirectoryError, match="expected a file"):
        check_target(tmp_path)
    monkeypatch.setattr(os, "access", lambda _place, _mode: False)
    with pytest.raises(PermissionError, match="may not be written to"):
        check_target(tmp_path / "new")
