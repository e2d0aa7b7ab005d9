from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.fleet.settings import WatchSettings, read_settings
from tests.docs.markdown import ROOT, blocks

GOOD = """every: 1m
window: 20m
history: 2h
model: minder.model
http-config: web.yaml
webhook: http://host:5001/drain
command: {python} -c 'print("a b")'
metrics-port: 9469
metrics-address: 127.0.0.1
retire-share: 0.1
retire-every: 1h30m
"""


def read(folder: Path, text: str) -> WatchSettings:
    (folder / "watch.yaml").write_text(text)
    return read_settings(folder / "watch.yaml")


def test_a_file_has_the_settings_of_a_watch(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text("http_headers: {x: {values: [y]}}")
    found = read(tmp_path, GOOD.format(python=sys.executable))
    assert (found.every, found.window, found.history) == (60, 1200, 7200)
    assert found.metrics_address == "127.0.0.1"
    assert (found.metrics_port, found.retire_share, found.retire_every) == (9469, 0.1, 5400)
    assert found.model == str(tmp_path / "minder.model")
    assert found.http_config.headers == {"x": "y"}
    assert found.receivers == (found.webhook, found.command)
    assert found.command is not None
    assert found.command.arguments == (sys.executable, "-c", 'print("a b")')


def test_an_empty_file_and_the_one_on_the_page_have_the_defaults(tmp_path, monkeypatch) -> None:
    assert read(tmp_path, "") == WatchSettings()
    assert WatchSettings().receivers == ()
    monkeypatch.setattr("shutil.which", lambda name: name)
    (tmp_path / "web.yaml").touch()
    (text,) = (block.text for block in blocks((ROOT / "docs/watch.md").read_text()) if "retire-every" in block.text)
    found, usual = read(tmp_path, text), WatchSettings()
    for name in ("every", "window", "history", "continuity", "metrics_address", "retire_share", "retire_every"):
        assert getattr(found, name) == getattr(usual, name)
    assert len(found.receivers) == 2


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("every: 1m\nevry: 2m", "watch.yaml, line 2: 'evry' is unknown here; there is: 'every'"),
        ("every: 8parsecs", "line 1: every: expected a duration above 0 such as 15s, 8m or 1h30m, got '8parsecs'"),
        ("model:", "line 1: model: expected the name of a file"),
        ("webhook: host", "line 1: webhook: no URL of a webhook: expected http://"),
        ("command: nosuchprogram", "line 1: command: there is no program 'nosuchprogram' to run"),
        ("metrics-port: 70000", "line 1: metrics-port: expected a port from 1 to 65535, got '70000'"),
        ("metrics-address: ::1", "line 1: 'metrics-address' is given without 'metrics-port'"),
        ("metrics-port: 1\nmetrics-address:", "line 2: metrics-address: expected an address of this host, such as"),
        ("retire-share: 25%", "line 1: retire-share: expected a share above 0 and below 1 such as 0.25, got '25%'"),
        ("retire-share: 1", "line 1: retire-share: expected a share above 0 and below 1"),
    ],
)
def test_an_error_names_its_line(text: str, wrong: str, tmp_path: Path) -> None:
    with pytest.raises(TextFileError) as raised:
        read(tmp_path, text)
    assert wrong in str(raised.value)
