"""Run the commands of a page's ``console`` blocks again, and put what they print below them.

``python docs/run_consoles.py docs/tutorial.md`` runs every line that begins with ``$`` in a temporary folder, one after
another, so that a later command can use the files of an earlier one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main(pages: list[str]) -> None:
    """Rewrite each page."""
    environment = {
        **os.environ,
        "COLUMNS": "80",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    for page in map(Path, pages):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(DOCS / "slow_job.py", folder)

            def run_again(block: re.Match[str], folder: str = folder) -> str:
                commands = [line for line in block[1].splitlines() if line.startswith("$ ")]
                shown = [f"{command}\n{output_of(command[2:], folder, environment)}" for command in commands]
                return "```console\n" + "".join(shown) + "```"

            text = CONSOLE.sub(run_again, page.read_text(encoding="utf-8"))
        page.write_text(text, encoding="utf-8")


def output_of(command: str, folder: str, environment: dict[str, str]) -> str:
    """What a command prints; it must succeed."""
    said = subprocess.PIPE, subprocess.STDOUT
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, stdout=said[0], stderr=said[1], text=True)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stdout[-2000:]}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.strip("\n").splitlines())


if __name__ == "__main__":
    main(sys.argv[1:])
