from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dask_efficiency.plugin.worker.sensors.files import KeptFiles


class Paged:
    """Answers whole lines, a page of them at a time, as the kernel does."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, descriptor: int, offset: int, nbytes: int) -> bytes:
        page = self.content[offset : offset + min(nbytes, 4096)]
        return page[: page.rfind(b"\n") + 1]


@pytest.mark.parametrize("lines", [0, 1, 40, 500])
def test_a_file_of_several_pages_is_read_as_a_whole(tmp_path: Path, lines: int) -> None:
    (tmp_path / "diskstats").touch()
    content = b"".join(b"%4d %d sd%d %s\n" % (i, i, i, b"0 " * 40) for i in range(lines))
    reader: Any = Paged(content)
    files = KeptFiles(tmp_path, reader)
    assert files.read("diskstats") == content
    files.close()
