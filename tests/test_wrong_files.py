"""Commands over what is no file of theirs, or no file at all: one line, which names it."""

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from dask_efficiency.cli import main

DATA = Path(__file__).parent / "data"
COMMANDS = [
    "report {}",
    "compare report.json {}",
    "history {}",
    "critical-path {}",
    "critical-path run.trace --before {}",
    "stragglers {}",
    "stragglers run.trace --history {}",
    "simulate {}",
    "simulate run.trace --cluster {}",
    "simulate run.trace --cluster lab.yaml --hostfile {}",
    "torch summary {}",
    "torch path {}",
    "torch path trace.json.gz --execution-trace {}",
    "mpi simulate --cluster lab.yaml {}",
    "fleet watch host:9090 --once --metrics nowhere --settings {}",
    "fleet watch host:9090 --once --metrics {}",
    "fleet train --save minder.model {}",
    "report --scheduler-file {}",
]
FILES = ["folder", "empty", "binary", "text", "broken", "circle", "pipe", "no such file", "/dev/null", "/dev/zero"]
FILES += ["\udcff", "folder/", "text/"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "text").write_text("a line\n" * 3)
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe")
    shutil.copy(DATA / "diagnoses" / "chain.json", "report.json")
    shutil.copy(DATA / "diagnoses" / "chain.trace", "run.trace")
    shutil.copy(DATA / "simulation" / "lab.yaml", "lab.yaml")
    shutil.copy(DATA / "kineto" / "event_sync.json.gz", "trace.json.gz")
    return tmp_path


#: Options whose files are text, which is read from a pipe, too.
TEXTS = ("--cluster {}", "--hostfile {}", "--settings {}", "--metrics {}", "--scheduler-file {}")


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices are those of POSIX")
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_file_of_a_command_is_named_in_one_line(folder: Path, command: str) -> None:
    for file in FILES:
        if file == "pipe" and command.endswith(TEXTS):
            continue
        ran = CliRunner().invoke(main, [part.format(file) for part in command.split()])
        where = file, ran.output
        assert isinstance(ran.exception, SystemExit), where
        assert ran.exit_code in (1, 2), where
        *before, error = ran.stderr.strip().splitlines()
        assert error.startswith("Error: "), where
        assert all(line.startswith(("Usage: ", "Try ", "connecting to ")) or not line for line in before), where
