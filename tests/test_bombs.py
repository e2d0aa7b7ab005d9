"""Small files that hold far more than their size are refused, in bounded memory, by every reader."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from dask_efficiency import load_report, load_trace
from dask_efficiency.cli import main
from dask_efficiency.files import storage
from dask_efficiency.files.storage import DamagedFileError, FileTooLargeError, Members, any_size, reading
from dask_efficiency.fleet import load_minder
from dask_efficiency.mpi import load_trace as from_mpi_trace
from dask_efficiency.torch_traces import load_critical_path as load_path
from dask_efficiency.torch_traces import load_kineto

#: What each bomb holds: enough to tell by the memory whether it was unpacked.
HELD = 1 << 28

TRACE = Path(__file__).parent / "data" / "diagnoses" / "chain.trace"


def deflated(member: str, content: bytes, times: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, archive.open(member, "w") as to:
        for _ in range(times):
            to.write(content)
    return file.getvalue()


def zipped(content: bytes, times: int) -> bytes:
    file = io.BytesIO()
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1) as into:
        for _ in range(times):
            into.write(content)
    return file.getvalue()


def xz(content: bytes, times: int) -> bytes:
    compressor = lzma.LZMACompressor(preset=0)
    return b"".join([*(compressor.compress(content) for _ in range(times)), compressor.flush()])


BLANK = b" " * (1 << 24)
TIMES = HELD // len(BLANK)

BOMBS: dict[str, tuple[Callable[[str], object], Callable[[], bytes]]] = {
    "run.trace": (load_trace, lambda: deflated("trace.json", BLANK, TIMES)),
    "torch.path": (load_path, lambda: deflated("path.json", BLANK, TIMES)),
    "report.json.xz": (load_report, lambda: xz(BLANK, TIMES)),
    "report.json.zip": (load_report, lambda: deflated("report.json", BLANK, TIMES)),
    "rank.json.gz": (load_kineto, lambda: zipped(b'{"traceEvents": [' + BLANK, TIMES)),
    "ranks.txt.gz": (from_mpi_trace, lambda: zipped(BLANK, TIMES)),
    "minder.model": (load_minder, lambda: deflated("minder.json", BLANK, TIMES)),
}

#: Reads each file with a reader, and says what became of it and what the process took at most.
READ = """
import resource, sys
from tests.test_bombs import BOMBS
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        BOMBS[path.rpartition("/")[2]][0](path)
    except ValueError as error:
        print(path, type(error).__name__)
print("grown by", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere memory is in other units")
def test_no_reader_unpacks_a_bomb(tmp_path: Path) -> None:
    for name, (_, made) in BOMBS.items():
        (tmp_path / name).write_bytes(made())
    paths = [str(tmp_path / name) for name in BOMBS]
    done = subprocess.run(
        [sys.executable, "-c", READ, *paths], capture_output=True, text=True, cwd=Path(__file__).parents[1]
    )
    *lines, grown = done.stdout.splitlines()
    assert lines == [f"{path} FileTooLargeError" for path in paths], done.stderr
    # What a file may hold, in pieces and as a whole, and some room; any bomb alone is more.
    assert int(grown.removeprefix("grown by ")) < 5 * storage.MAX_BYTES < HELD


@pytest.mark.parametrize("name", ["run.trace", "torch.path", "report.json.zip", "minder.model"])
def test_an_archive_in_a_compressed_file_is_not_unpacked(name: str, small: None, tmp_path: Path) -> None:
    read, _ = BOMBS[name]
    path = tmp_path / name
    path.write_bytes(gzip.compress(deflated("trace.json", bytes(1_000_000), 1)))
    with pytest.raises(ValueError, match=r"not a zip file|no valid JSON|no archive") as refused:
        read(str(path))
    assert not isinstance(refused.value, FileTooLargeError)


def unusual(*, flags: int = 0, name: bytes = b"r.json") -> bytes:
    """An archive whose only member has these flags and this name in the directory."""
    content = bytearray(deflated("r.json", b"{}", 1))
    at = content.index(b"PK\x01\x02")
    content[at + 8] |= flags & 0xFF
    content[at + 9] |= flags >> 8
    content[at + 46 : at + 52] = name
    return bytes(content)


UNREADABLE = {
    "encrypted": unusual(flags=0x1),
    "patched": unusual(flags=0x20),
    "misnamed": unusual(flags=0x800, name=b"\xff" * 6),
    "empty": storage.ZIP + b"PK\x05\x06" + bytes(18),
}


@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.parametrize("read", [load_trace, load_path, load_report, load_minder])
def test_an_archive_that_cannot_be_read_is_refused_by_name(read: Callable[..., object], kind: str, file: Path) -> None:
    file.write_bytes(UNREADABLE[kind])
    with pytest.raises(ValueError, match=f"^{file}: "):
        read(str(file))


@pytest.mark.parametrize("command", [["stragglers"], ["fleet", "train", "--save", "minder.model"]])
def test_a_table_whose_rows_take_no_room_in_its_file_is_refused(
    command: list[str], small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"worker": ["a"], "prefix": ["b"]}).loc[[0] * 1_000_000].to_parquet("tasks.parquet", index=False)
    refused = CliRunner().invoke(main, [*command, "tasks.parquet"])
    assert refused.exit_code
    assert "once decompressed; expected at most 100 times as many" in refused.output


def test_a_member_in_bzip2_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.trace"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("trace.json", b"{}")
    with pytest.raises(ValueError, match=r"run.trace: .*'trace.json' is neither stored nor deflated"):
        load_trace(path)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "MAX_BYTES", 10_000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def content_of(file: Path, stored: bytes) -> bytes:
    """The bytes that a reader gets where these are stored."""
    file.write_bytes(stored)
    with reading(file) as opened:
        return opened.read()


def test_a_file_that_is_large_itself_may_hold_more(small: None, file: Path) -> None:
    for stored in (gzip.compress(bytes(100_000), 0), bytes(100_000)):
        assert content_of(file, stored) == bytes(100_000)


def test_all_members_together_hold_no_more_than_a_file_may(small: None) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in "abc":
            archive.writestr(name, bytes(20_000))
    members = Members(file.getvalue(), "file")
    assert members.read("a") == bytes(20_000)
    with pytest.raises(FileTooLargeError):
        [members.read(name) for name in ("b", "c", "a")]


def test_a_forged_size_is_not_believed(small: None) -> None:
    content = bytearray(deflated("a", bytes(1_000_000), 1))
    # The size in the directory at the end is the one that readers of archives look at.
    at = content.index((1_000_000).to_bytes(4, "little"), content.index(b"PK\x01\x02"))
    content[at : at + 4] = (10).to_bytes(4, "little")
    with pytest.raises(zipfile.BadZipFile):
        Members(bytes(content), "file").read("a")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_file_is_read_as_far_as_it_may_hold_unless_it_is_damaged(
    compress: Callable[[bytes], bytes], small: None, file: Path
) -> None:
    assert content_of(file, compress(bytes(10_000))) == bytes(10_000)
    bomb, content = compress(bytes(1_000_000)), compress(bytes(range(256)) * 39)
    with pytest.raises(FileTooLargeError, match=r"file: its first \d+ bytes hold more than"):
        content_of(file, bomb)
    with any_size():
        assert content_of(file, bomb) == bytes(1_000_000)
    with pytest.raises(DamagedFileError, match=f"ends early, after {len(content) - 5} bytes"):
        content_of(file, content[:-5])
    with pytest.raises(DamagedFileError):
        content_of(file, bytes([*content[:20], content[20] ^ 1, *content[21:]]))


def test_the_command_line_refuses_a_bomb_in_one_line_unless_any_size_is_allowed(
    small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    report = {"format": "dask-efficiency-report", "version": 1, "blank": " " * 100_000, "report": {}}
    Path("report.json.gz").write_bytes(gzip.compress(json.dumps(report).encode()))
    refused = CliRunner().invoke(main, ["report", "report.json.gz"])
    assert refused.exit_code == 1
    assert refused.output.startswith("Error: report.json.gz: its first ")
    assert "If you trust it: `dask-efficiency --any-size`" in refused.output
    assert len(refused.output.splitlines()) == 1
    allowed = CliRunner().invoke(main, ["--any-size", "report", "report.json.gz"])
    assert "'report' lacks" in allowed.output
