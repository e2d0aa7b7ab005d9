"""Journeys: what nine strangers type, each in a fresh environment, and how long it takes until they know the answer.

    python -m tests.journeys               # all that can run here
    python -m tests.journeys laptop gate   # these

Each ``.sh`` beside this file is one. Its head says on which pages its commands stand, what it needs besides the package
(Debian's programs, packages of Python), and the line of output that is the first true answer. The package is installed
from a wheel of this checkout; environments are made once for each set of packages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from dashboards.monitor.prometheus import free_port

HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent

#: Seconds after which a journey has failed.
TIMEOUT = 300


@dataclass(frozen=True)
class Journey:
    """What a stranger types."""

    name: str
    text: str

    def head(self, key: str) -> str:
        """What its head says of a key; empty without."""
        found = re.search(rf"^# {key}: (.+)$", self.text, re.MULTILINE)
        return found[1] if found else ""

    @property
    def missing(self) -> list[str]:
        """Programs that it needs and that are not here."""
        return [name for name in self.head("needs").split() if not shutil.which(name)]


def journeys() -> list[Journey]:
    """All of them."""
    return [Journey(path.stem, path.read_text(encoding="utf-8")) for path in sorted(HERE.glob("*.sh"))]


@dataclass(frozen=True)
class Outcome:
    """How a journey went."""

    code: int
    #: Seconds until the first true answer was printed; None if it was not.
    answer: float | None
    seconds: float
    output: str


def go(journey: Journey, python: Path, folder: Path) -> Outcome:
    """Run a journey in a folder with an environment, and wait for its answer."""
    shutil.copy(HERE / "job.py", folder)
    ports = {name: str(free_port()) for name in ("PORT", "DASHBOARD", "PROMETHEUS")}
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    environment = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    environment |= {"PATH": path, "CHECKOUT": str(CHECKOUT), "COLUMNS": "120", **ports}
    with _fleet(folder) if journey.head("world") == "fleet" else nullcontext({}) as world:
        began = time.monotonic()
        command = ["timeout", str(TIMEOUT), "bash", "-euo", "pipefail", "-c", journey.text]
        process = subprocess.Popen(
            command, cwd=folder, env=environment | world, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        lines, answer, expected = [], None, re.compile(journey.head("answer"))
        for line in process.stdout:
            lines.append(line)
            # An answer may be folded onto a second line.
            if answer is None and expected.search("".join(lines[-2:]).replace("\n   ", " ")):
                answer = time.monotonic() - began
        return Outcome(process.wait(), answer, time.monotonic() - began, "".join(lines))


def environment(packages: Sequence[str], wheel: Path, folder: Path) -> tuple[Path, float]:
    """A fresh environment with the wheel and other packages: its Python, and the seconds that `pip install` took."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    began = time.monotonic()
    subprocess.run([python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", wheel, *packages], check=True)
    return python, time.monotonic() - began


def build(folder: Path) -> Path:
    """A wheel of this checkout."""
    command = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--wheel-dir", folder, CHECKOUT]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@contextmanager
def _fleet(folder: Path) -> Iterator[dict[str, str]]:
    """A Prometheus with the last two hours of 64 machines, of which one has had memory errors for ten minutes."""
    import numpy as np

    from tests.fleet.generated import NAMES, generate
    from tests.fleet.prometheus.backfilled import metrics_file, open_metrics, prometheus_with

    window = generate(30_007, machines=64, seconds=2400, past_seconds=4800, faults=True)
    assert window.past is not None
    assert window.onset is not None
    length = 4800 + int(window.onset) + 600
    values = np.concatenate([window.past, window.values], axis=2)[:, :, :length]
    (folder / "metrics.yaml").write_text(metrics_file(step=10))
    text = open_metrics(dict(zip(NAMES, values, strict=True)), start=time.time() - length, step=10)
    with prometheus_with(text, folder) as server:
        yield {"FLEET": server.url}


def main(names: Sequence[str]) -> int:
    """Run journeys, print how long each took, and return how many failed."""
    chosen = [journey for journey in journeys() if not names or journey.name in names]
    failed = 0
    environments: dict[str, tuple[Path, float]] = {}
    print(f"{'journey':12}{'pip install, s':>16}{'first answer, s':>17}{'whole, s':>10}")
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build(Path(scratch))
        for journey in chosen:
            if journey.missing:
                print(f"{journey.name:12}  not run: there is no {', '.join(journey.missing)} here")
                continue
            packages = journey.head("installs")
            if packages not in environments:
                folder = Path(scratch) / f"venv{len(environments)}"
                environments[packages] = environment(packages.split(), wheel, folder)
            python, installed = environments[packages]
            folder = Path(scratch) / journey.name
            folder.mkdir()
            found = go(journey, python, folder)
            answer = "none" if found.answer is None else f"{found.answer:.1f}"
            print(f"{journey.name:12}{installed:16.1f}{answer:>17}{found.seconds:10.1f}", flush=True)
            if found.code or found.answer is None:
                failed += 1
                print(f"{found.output}\n{journey.name} ended with {found.code}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
