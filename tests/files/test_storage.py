import gzip
import os
import stat
from pathlib import Path

import fsspec
import pytest

from dask_efficiency.files.storage import check_target, writing


@pytest.mark.parametrize("place", ["{}/a", "file://{}/a", "memory://{}/a"])
def test_an_error_in_the_block_leaves_the_old_content_and_no_other_file(tmp_path: Path, place: str) -> None:
    path = place.format(tmp_path)
    with writing(path) as file:
        file.write(b"old")
        assert not (tmp_path / "a").exists()
    with pytest.raises(TypeError, match="bytes"), writing(path) as file:
        file.writelines([b"new", 0])  # type: ignore[list-item]
    with fsspec.open(path, "rb") as file:
        assert file.read() == b"old"
    assert os.listdir(tmp_path) in (["a"], [])


def test_a_name_in_gz_is_compressed_when_asked_to_infer_and_a_url_gets_its_options(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    for compression, read in (("infer", gzip.decompress), (None, bytes)):
        with writing(path, compression=compression) as file:
            file.write(b"text")
        assert read(path.read_bytes()) == b"text"
    with writing("memory://storage/a", skip_instance_cache=True) as file:
        file.write(b"1")
    assert fsspec.filesystem("memory").cat("/storage/a") == b"1"


def test_a_path_that_cannot_be_written_is_known_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in (tmp_path / "new", f"file://{tmp_path}/new", "/dev/null", "memory://nowhere/new"):
        check_target(target)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        check_target(tmp_path / "none" / "new")
    with pytest.raises(FileNotFoundError, match="missing/a"), writing(tmp_path / "missing" / "a"):
        pass
    with pytest.raises(IsADirectoryError, match="expected a file"):
        check_target(tmp_path)
    monkeypatch.setattr(os, "access", lambda _place, _mode: False)
    with pytest.raises(PermissionError, match="may not be written to"):
        check_target(tmp_path / "new")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_that_is_replaced_keeps_its_mode_also_while_it_is_written(tmp_path: Path, mode: int) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(mode)
    with writing(tmp_path / "a") as file:
        file.write(b"new")
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {mode}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_new_file_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with writing(tmp_path / "a") as file:
            file.write(b"new")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_is_replaced_keeps_its_owner(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    os.chown(tmp_path / "a", 12, 34)
    with writing(tmp_path / "a") as file:
        file.write(b"new")
    assert ((tmp_path / "a").stat().st_uid, (tmp_path / "a").stat().st_gid) == (12, 34)


@pytest.mark.parametrize(("mode", "after"), [(0o660, 0o600), (0o664, 0o644), (0o640, 0o600)])
def test_a_file_that_keeps_no_owner_gives_no_new_right_to_read_it(tmp_path, monkeypatch, mode, after):
    def chown(_file: int, _user: int, _group: int) -> None:
        raise PermissionError

    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(mode)
    monkeypatch.setattr(os, "chown", chown)
    with writing(tmp_path / "a") as file:
        file.write(b"new")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == after
