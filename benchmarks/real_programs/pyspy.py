"""What py-spy says of the lines on which tasks spend their time: a sampler from outside that we did not write."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

#: Looks a second. Each takes py-spy some milliseconds of a core.
RATE = 20

#: What each recording counts: all looks at a task, and those in which its thread had the GIL.
KINDS = {"all": ("--idle",), "gil": ("--gil",)}

#: A task's frames are those inside of this one.
TASK = re.compile(r"^(apply_function|apply_function_simple|_run_task) \(distributed/worker\.py")

#: A task's frames that are not its own. Dask's own use of context managers ends in contextlib.
DASKS = re.compile(
    r"\((distributed|dask_efficiency|concurrent)/|\(dask/_task_spec\.py|\(dask/utils\.py|/contextlib\.py:"
)

FRAME = re.compile(r"^(?P<function>.*) \((?P<file>.*?)(:(?P<line>\d+))?\)$")


@dataclass(slots=True)
class Lines:
    """Number of looks at tasks, by innermost line ("function (file:line)") and by any line on the stack."""

    innermost: Counter[str] = field(default_factory=Counter)
    on_stack: Counter[str] = field(default_factory=Counter)
    looks: int = 0

    def shares(self, number: int = 8) -> dict[str, float]:
        """The most frequent innermost lines, as shares of the looks at tasks, in [0, 1]."""
        return {line: count / self.looks for line, count in self.innermost.most_common(number)}


def program() -> str | None:
    """Where py-spy is: beside this Python, or on the path."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy")


@contextmanager
def spied(pids: Iterable[int]) -> Iterator[dict[str, Lines]]:
    """Record processes during the block; each of :data:`KINDS` is there when it is over."""
    found = {kind: Lines() for kind in KINDS}
    spy = program()
    if spy is None:
        raise FileNotFoundError("py-spy is not installed")
    with tempfile.TemporaryDirectory() as place:
        recordings = []
        for pid in pids:
            for kind, options in KINDS.items():
                file = Path(place) / f"{pid}.{kind}"
                command = [spy, "record", "--pid", str(pid), "--rate", str(RATE), "--format", "raw", "--nonblocking"]
                command += ["--full-filenames", "--output", str(file), "--duration", "unlimited", *options]
                quiet = subprocess.DEVNULL
                recordings.append((kind, file, subprocess.Popen(command, stdout=quiet, stderr=quiet)))
        try:
            yield found
        finally:
            for _, _, recording in recordings:
                recording.send_signal(signal.SIGINT)
            for _, _, recording in recordings:
                recording.wait(60)
        for kind, file, _ in recordings:
            if file.exists():
                read(file.read_text(), found[kind])


def read(text: str, into: Lines) -> None:
    """Add collapsed stacks: those of tasks."""
    for row in text.splitlines():
        stack, _, count = row.rpartition(" ")
        frames = [shortened(frame) for frame in stack.split(";")]
        outermost = next((i for i, frame in enumerate(frames) if TASK.match(frame)), None)
        if outermost is None:
            continue
        own = [frame for frame in frames[outermost + 1 :] if not DASKS.search(frame)]
        into.looks += int(count)
        into.innermost[own[-1] if own else "(Dask)"] += int(count)
        into.on_stack.update(dict.fromkeys(own, int(count)))


def shortened(frame: str) -> str:
    """A frame with the last two parts of its file's path."""
    found = FRAME.match(frame)
    if not found:
        return frame
    file = "/".join(Path(found["file"]).parts[-2:])
    return f"{found['function']} ({file}{':' + found['line'] if found['line'] else ''})"
