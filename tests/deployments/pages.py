"""The pages of docs/deploy as their tests run them: block by block, in order, to the last."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployments.programs import program, python_path
from tests.docs.markdown import ROOT, Block, blocks

DEPLOY = ROOT / "docs" / "deploy"

#: What the line below a block begins with where no test runs it.
UNTRIED = "Untried: "


def is_tried(markdown: str, block: Block) -> bool:
    """Whether a page does not say that a block is untried."""
    after = markdown.splitlines()[block.line - 1 + block.text.count("\n") :]
    return not next((line for line in after if line and line != "```"), "").startswith(UNTRIED)


def tried_blocks(name: str) -> list[Block]:
    markdown = (DEPLOY / f"{name}.md").read_text(encoding="utf-8")
    return [block for block in blocks(markdown) if is_tried(markdown, block)]


class Page:
    """Blocks of a page that are still to be run, in a folder where files are written and commands run."""

    def __init__(self, name: str, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        #: What stands on the page, and what is run in its place.
        self.instead: dict[str, str] = {}
        #: Variables that the page exports in a block of commands, and what commands of the tests need.
        self.environment = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": python_path(),
        }
        self._blocks = iter(tried_blocks(name))
        self._replaced: set[str] = set()
        self._stack = stack

    def take(self, language: str) -> str:
        """The next block, which must be of this language."""
        block = next(self._blocks)
        assert block.language == language, f"line {block.line}"
        text = block.text
        for there, here in self.instead.items():
            if there in text:
                self._replaced.add(there)
                text = text.replace(there, here)
        return text

    def python(self) -> None:
        """Run the next block, in the namespace of those before."""
        exec(self.take("python notest"), self.namespace)

    def file(self, name: str) -> None:
        """Write the next block, of Python, to a file."""
        (self.folder / name).write_text(self.take("python notest"))

    def yaml(self) -> Any:
        """What the next block says."""
        return yaml.safe_load(self.take("yaml"))

    def commands(self) -> str:
        """Run the next block in a shell, to its end; gives what it prints."""
        return self.run(self.take(""))

    def run(self, commands: str) -> str:
        """Run commands in a shell, to their end; gives what they print."""
        command = ["bash", "-euc", commands]
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self) -> None:
        """Start each line of the next block, which goes on until the page is done; variables are exported before."""
        for number, line in enumerate(self.take("").splitlines()):
            if line.startswith("export "):
                name, _, value = line.removeprefix("export ").partition("=")
                self.environment[name] = value
            else:
                log = self.folder / f"{number}-{len(line)}.log"
                self._stack.enter_context(program(line.split(), log, environment=self.environment))

    def check_prometheus(self) -> None:
        """Have promtool read the next block."""
        file = self.folder / "prometheus.yml"
        file.write_text(self.take("yaml"))
        done = subprocess.run(["promtool", "check", "config", str(file)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr

    def is_done(self) -> None:
        left = [block.line for block in self._blocks]
        assert not left, f"blocks of lines {left} were not run"
        assert self._replaced == self.instead.keys(), "what stands on the page no more is replaced"


@contextmanager
def page(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """A page whose blocks must all be run."""
    monkeypatch.chdir(folder)
    with ExitStack() as stack:
        opened = Page(name, folder, stack)
        yield opened
        opened.is_done()
