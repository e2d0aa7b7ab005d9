import errno
import gzip
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from dask_efficiency.files import storage
from dask_efficiency.files.storage import check_target, followed, writing
from tests.links import links_of_another_user


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
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
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


@pytest.fixture(params=["nameless", "named"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of file systems: on those without nameless files, a new file has another name at first."""
    if request.param == "named":
        monkeypatch.setattr(storage, "_OPEN_FILES", "/nowhere")


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("before", [None, b"old"])
def test_a_file_is_written_as_a_whole_and_alone(tmp_path: Path, before: bytes | None) -> None:
    if before is not None:
        (tmp_path / "a").write_bytes(before)
    with writing(tmp_path / "a") as file:
        file.write(b"new")
        assert before is None or (tmp_path / "a").read_bytes() == before
    assert (tmp_path / "a").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="only Linux has files without names")
def test_a_save_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from dask_efficiency.files.storage import writing\n"
        "with writing(sys.argv[1]) as file:\n"
        "    file.write(bytes(100_000))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "a").write_bytes(b"old")
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "a")], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_a_new_file_replaces_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    linked = os.link

    def link(source: str, *others: object, **options: object) -> None:
        if not links and not source.startswith("/proc"):
            raise OSError(errno.EPERM, "Operation not permitted", source)
        linked(source, *others, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", link)
    with writing(tmp_path / "a", new=True) as first:
        first.write(b"first")
        with writing(tmp_path / "a", new=True) as second:  # the second is ready before the first
            second.write(b"second")
        with pytest.raises(FileExistsError, match="a'$"), writing(tmp_path / "a", new=True) as third:
            third.write(b"third")
        first.write(b" and more")
        os.rename(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == b"first and more"
    assert (tmp_path / "b").read_bytes() == b"second"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_new_file_elsewhere_replaces_none() -> None:
    with writing("memory://new/a", new=True) as file:
        file.write(b"first")
    with pytest.raises(FileExistsError, match="memory://new/a"), writing("memory://new/a", new=True) as file:
        file.write(b"second")
    assert fsspec.filesystem("memory").cat("/new/a") == b"first"


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o1775, 0o755])
@pytest.mark.parametrize("links", ["file", "folder", "nothing", "link"])
def test_another_users_link_is_followed_only_where_few_may_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, links: str
) -> None:
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    mine.mkdir()
    shared.mkdir()
    shared.chmod(mode)
    (mine / "a").write_bytes(b"mine")
    place = shared / "a"
    if links == "file":
        place.symlink_to(mine / "a")
    elif links == "nothing":
        place.symlink_to(mine / "new")
    elif links == "folder":
        (shared / "f").symlink_to("../mine")
        place = shared / "f" / "a"
    else:
        (mine / "link").symlink_to(shared / "second")
        (shared / "second").symlink_to(mine / "a")
        place = mine / "link"
    links_of_another_user(monkeypatch)
    reached = mine / ("new" if links == "nothing" else "a")
    if mode & stat.S_IWOTH:
        for write in (check_target, lambda path: writing(path).__enter__(), followed):
            with pytest.raises(PermissionError, match="'[^']*shared/(a|f|second)' is another user's link"):
                write(place)
        assert (mine / "a").read_bytes() == b"mine"
        assert not (mine / "new").exists()
    else:
        check_target(place)
        with writing(place) as file:
            file.write(b"new")
        assert reached.read_bytes() == b"new"


def test_a_link_of_ones_own_is_followed_anywhere_and_stays(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "link").symlink_to("a")
    with writing(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"new"


def test_links_lead_where_the_system_leads_and_circles_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "up").symlink_to("b/../../c")
    (tmp_path / "c").symlink_to(tmp_path / "a" / "b")
    (tmp_path / "round").symlink_to("round")
    monkeypatch.chdir(tmp_path)
    for path in ("a/up/x", "a/up/../x", "./c//x", "c/..", "/", "a/b/../up", str(tmp_path / "c")):
        assert followed(path) == os.path.realpath(path)
    with pytest.raises(OSError, match=f"{os.strerror(errno.ELOOP)}: 'round/x'"):
        followed("round/x")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_full_device_is_named(compression: str | None) -> None:
    with pytest.raises(OSError, match="'/dev/full'$") as raised, writing("/dev/full", compression=compression) as file:
        file.write(bytes(100_000))
    assert raised.value.errno == errno.ENOSPC


@pytest.mark.skipif(os.name != "posix", reason="needs a limit on the size of files")
@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("nbytes", [1, 100_000])
def test_a_disk_that_is_full_names_the_target_which_stays(tmp_path: Path, nameless: bool, nbytes: int) -> None:
    program = (
        "import resource, sys\n"
        "from dask_efficiency.files import storage\n"
        "path, nbytes, nameless = sys.argv[1:]\n"
        "if nameless == 'False':\n"
        "    storage._OPEN_FILES = '/nowhere'\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    with storage.writing(path) as file:\n"
        "        file.write(bytes(int(nbytes)))\n"
        "except OSError as error:\n"
        "    print(error)\n"
    )
    (tmp_path / "a").write_bytes(b"old")
    command = [sys.executable, "-c", program, str(tmp_path / "a"), str(nbytes), str(nameless)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(tmp_path / 'a'))}\n"
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="no /dev/stdout")
def test_a_link_to_an_open_pipe_is_written_to() -> None:
    program = "from dask_efficiency.files.storage import *\ncheck_target('/dev/stdout')\n"
    program += "with writing('/dev/stdout') as file:\n    file.write(b'all')\n"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"all"
