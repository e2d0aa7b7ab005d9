import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dask_efficiency.histories import folder as module
from dask_efficiency.histories.folder import INDEX, WORTH_AN_INDEX, read_folder
from tests.histories.nights import night, saved


def names(found: Any) -> list[str]:
    return [os.path.basename(run.path) for run in found[0]]


def test_reports_of_a_folder_are_read_with_those_in_folders_in_it(tmp_path: Path) -> None:
    saved(tmp_path, [night(0)])
    saved(tmp_path / "main", [night(1)])
    night(2).save(tmp_path / "main" / "two.json.gz")
    assert names(read_folder(str(tmp_path))) == ["000.json", "000.json", "two.json.gz"]
    assert names(read_folder(str(tmp_path / "main" / "*.gz"))) == ["two.json.gz"]
    assert names(read_folder(f"file://{tmp_path}/main")) == ["000.json", "two.json.gz"]


def test_urls_are_read(tmp_path: Path) -> None:
    night(3).save("memory://nightly/three.json")
    runs, _ = read_folder("memory://nightly")
    assert [(run.path, run.head.wall_clock_seconds) for run in runs] == [("memory:///nightly/three.json", 60.0)]


def test_links_are_followed_and_archives_are_refused(tmp_path: Path) -> None:
    saved(tmp_path / "kept", [night(0)])
    links = tmp_path / "links"
    links.mkdir()
    (links / "one.json").symlink_to(tmp_path / "kept" / "000.json")
    (links / "nowhere.json").symlink_to(tmp_path / "gone.json")
    assert names(read_folder(str(links))) == ["one.json"]
    with pytest.raises(ValueError, match="chain of file systems"):
        read_folder(f"zip://::{tmp_path}/runs.zip")


def test_a_report_of_equal_size_that_was_replaced_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def walls() -> set[float]:
        return {run.head.wall_clock_seconds for run in read_folder("memory://replaced")[0]}

    def save(wall: float) -> None:
        for number in range(WORTH_AN_INDEX):
            night(number, wall).save(f"memory://replaced/{number:03}.json")

    for stamps in (module._STAMPS, ()):  # by its time, and where no time is known
        monkeypatch.setattr(module, "_STAMPS", stamps)
        for wall in (60.0, 90.0):
            save(wall)
            assert walls() == {wall}


def test_other_files_are_named_with_the_reason_and_the_rest_is_read(tmp_path: Path) -> None:
    saved(tmp_path, [night(0)])
    (tmp_path / "other.json").write_text('{"traceEvents": []}')
    (tmp_path / "empty.json").touch()
    (tmp_path / "half.json").write_text((tmp_path / "000.json").read_text()[:1000])
    (tmp_path / "notes.txt").write_text("not looked at")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.json")
    runs, not_read = read_folder(str(tmp_path))
    assert names((runs, not_read)) == ["000.json"]
    assert sorted(map(os.path.basename, not_read)) == ["empty.json", "half.json", "other.json"]


def test_a_large_file_that_is_no_report_is_not_read_to_its_end(tmp_path: Path) -> None:
    saved(tmp_path, [night(0)])
    with gzip.open(tmp_path / "timeline.json.gz", "wb") as file:
        file.write(b'{"traceEvents": [' + b" " * 5_000_000)
    assert "4096 bytes" in next(iter(read_folder(str(tmp_path))[1].values()))


def test_a_report_that_was_formatted_anew_is_read_all_the_same(tmp_path: Path) -> None:
    saved(tmp_path, [night(0)])
    whole = json.loads((tmp_path / "000.json").read_text())
    (tmp_path / "001.json").write_text(json.dumps(whole, indent=1))
    (one, other), _ = read_folder(str(tmp_path))
    assert one.head == other.head


def test_an_index_saves_reading_heads_and_only_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, [night(number) for number in range(WORTH_AN_INDEX)])
    first = read_folder(str(tmp_path))
    assert (tmp_path / INDEX).exists()
    read: list[str] = []
    original = module.read_head
    monkeypatch.setattr(module, "read_head", lambda file, name: read.append(name) or original(file, name))
    assert read_folder(str(tmp_path)) == first
    assert read == []
    # a file that was replaced is read anew
    night(5, 90.0, labels={"retried": "yes"}).save(tmp_path / "005.json")
    again, _ = read_folder(str(tmp_path))
    assert [os.path.basename(path) for path in read] == ["005.json"]
    assert again[5].head.wall_clock_seconds == 90.0


def test_a_pattern_leaves_other_files_in_the_index(tmp_path: Path) -> None:
    saved(tmp_path, [night(number) for number in range(2 * WORTH_AN_INDEX)])
    read_folder(str(tmp_path))
    whole = (tmp_path / INDEX).read_bytes()
    assert len(read_folder(str(tmp_path / "*[0-4].json"))[0]) == WORTH_AN_INDEX
    assert (tmp_path / INDEX).read_bytes() == whole


def test_a_pattern_of_folders_is_refused_as_one(tmp_path: Path) -> None:
    saved(tmp_path / "abc1", [night(0)])
    with pytest.raises(FileNotFoundError, match="no file that matches"):
        read_folder(str(tmp_path / "abc*"))


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"version": "0"}', b'\xff\xfe{"runs": 1}'])
def test_a_damaged_index_is_written_anew(tmp_path: Path, content: bytes) -> None:
    saved(tmp_path, [night(number) for number in range(WORTH_AN_INDEX)])
    first = read_folder(str(tmp_path))
    whole = (tmp_path / INDEX).read_bytes()
    (tmp_path / INDEX).write_bytes(content)
    assert read_folder(str(tmp_path)) == first
    assert (tmp_path / INDEX).read_bytes() == whole


def test_rows_of_an_index_are_checked_as_heads_are(tmp_path: Path) -> None:
    saved(tmp_path, [night(number) for number in range(WORTH_AN_INDEX)])
    first = read_folder(str(tmp_path))
    index = json.loads((tmp_path / INDEX).read_text())
    index["runs"]["003.json"][1]["wall_clock_seconds"] = "long"
    index["runs"]["004.json"] = 4
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert read_folder(str(tmp_path)) == first


def test_a_folder_that_may_not_be_written_needs_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise PermissionError

    saved(tmp_path, [night(number) for number in range(WORTH_AN_INDEX)])
    monkeypatch.setattr(module, "writing", refused)
    assert len(read_folder(str(tmp_path))[0]) == WORTH_AN_INDEX


def test_what_is_no_folder_of_reports_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for where in (tmp_path / "nowhere", tmp_path / "notes.txt", tmp_path, tmp_path / "*.json"):
        with pytest.raises(FileNotFoundError, match=str(tmp_path)):
            read_folder(str(where))
