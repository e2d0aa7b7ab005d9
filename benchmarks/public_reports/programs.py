"""Form of a program after a public report: what it offers, what is expected of its report, and what programs share."""

from __future__ import annotations

import ast
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from distributed import Client

from benchmarks.workload_runs import lacking

#: Name of the variable with the size of the work, which processes of workers have as well.
SCALE_VARIABLE = "PUBLIC_REPORTS_SCALE"
#: Size of the work, in (0, 1].
SCALE = float(os.environ.get(SCALE_VARIABLE, "1"))
#: Name of the variable with the folder for the data of a run.
FOLDER_VARIABLE = "PUBLIC_REPORTS_FOLDER"

#: Folder of the sets of programs.
HOME = Path(__file__).parent
SETS = ("known", "frozen")

#: Comment at the end of a line at which a finding should point.
HERE = "# <- here"

#: Arguments of a LocalCluster: two processes with two threads each, on two cores.
TWO_BY_TWO: Mapping[str, Any] = {"n_workers": 2, "threads_per_worker": 2}
#: Two processes with one thread each.
TWO_BY_ONE: Mapping[str, Any] = {"n_workers": 2, "threads_per_worker": 1}

#: Variant of a program: its result is that of the other one.
Variant: TypeAlias = Callable[[Client], float]

# -- sentences that mislead in more than one program ------------------------------------------------

LONGER_TASKS = (
    r"longer tasks|tasks are too small|[Tt]oo many small tasks|(partitions|chunks) bigger|bigger (partitions|chunks)"
)
PROCESSES = r"[Uu]se processes|more (worker )?processes"
LOCK = r"[Ww]aiting for a lock|holds? the lock|hold it shorter"
SLEEP = r"[Ss]leeping|[Aa]void the sleep"
COMPUTED_AGAIN = r"computed again|persist\(\)"
#: A saving from fewer threads, where it is not other processes that have the cores.
WAITS_FOR_CORES = r"[Ww]aiting for (a core|the GIL)\W+saves[^\n]*\n(?![^\n]*other processes)"
MORE_WORKERS = (
    r"(?im)(^|[.:;])\s*(add|use|start|try) (more |further )?(workers|threads|cores)|too few (workers|threads)"
)
MORE_MEMORY = r"(?im)(^|[.:;])\s*(raise|increase|add|use more|give)\b[^.\n]{0,30}\bmemory"
HOLDS_GIL = r"(?i)GIL contention|(tasks?|functions?) (that )?(holds?|held) the GIL|release the GIL"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a reader of a report should be told, in words and as patterns (regular expressions).

    Patterns leave the wording to the tool: whatever a reader would take for the cause, the place or the cure matches.

    Parameters
    ----------
    cause, place, cure
        In words.
    says
        Pattern of the cause, searched in the title, place and advice of a finding, without regard to case. Lines of the
        user's source and names of files are left out: they say no cause.
    places
        Patterns of the place, each searched in a finding's ``where``: lines of :func:`marked`, or functions.
    cures
        Pattern of the cure, searched in the advice, without regard to case.
    never
        Patterns of sentences that would mislead, searched in all of the first screen, and the reasons.
    """

    cause: str
    place: str
    cure: str
    says: str
    places: tuple[str, ...]
    cures: str
    never: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Program:
    """Program of a set, ready to run."""

    name: str
    bad: Variant
    good: Variant
    expected: Expected
    cluster: Mapping[str, Any]
    #: Where the cure is another shape of the cluster, that.
    good_cluster: Mapping[str, Any]
    config: Mapping[str, Any]
    prepare: Callable[[], Any]
    #: Module in which its tasks are, which workers import before the stopwatch starts.
    module: str


# -- programs by name ------------------------------------------------------------------------------


def names_of(which: str) -> list[str]:
    """Names of the programs of a set."""
    return sorted(file.stem for file in (HOME / which).glob("*.py") if file.stem != "__init__")


def needs_of(which: str, name: str) -> tuple[str, ...]:
    """Modules that a program needs besides Dask, which is not imported for that."""
    for node in ast.parse((HOME / which / f"{name}.py").read_text()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["NEEDS"]:
            return tuple(ast.literal_eval(node.value))
    return ()


def program_of(which: str, name: str) -> Program | str:
    """Program of that name, or why it cannot be had here."""
    if lacks := lacking(needs_of(which, name)):
        return lacks
    module = import_module(f"benchmarks.public_reports.{which}.{name}")
    return Program(
        name=name,
        bad=module.bad,
        good=module.good,
        expected=module.EXPECTED,
        cluster=module.CLUSTER,
        good_cluster=getattr(module, "GOOD_CLUSTER", module.CLUSTER),
        config=getattr(module, "CONFIG", {}),
        prepare=getattr(module, "prepare", lambda: None),
        module=module.__name__,
    )


# -- what programs share ---------------------------------------------------------------------------


def marked(file: str, mark: str = HERE) -> tuple[str, ...]:
    """Patterns of the statements of a file that have a mark: any of their lines, as in ``etl.py:42``.

    Raises
    ------
    ValueError
        If no line has it.
    """
    source = Path(file).read_text()
    lines = [number for number, line in enumerate(source.splitlines(), 1) if line.rstrip().endswith(mark)]
    if not lines:
        raise ValueError(f"{file} has no line that ends in {mark!r}")
    spans = [(node.lineno, node.end_lineno or node.lineno) for node in ast.walk(ast.parse(source)) if _is_simple(node)]
    numbers = set(lines)
    for first, last in spans:
        if any(first <= line <= last for line in lines):
            numbers.update(range(first, last + 1))
    return tuple(rf"\b{re.escape(Path(file).name)}:{number}\b" for number in sorted(numbers))


def _is_simple(node: ast.AST) -> bool:
    """True for a statement without statements in it."""
    return isinstance(node, ast.stmt) and not hasattr(node, "body")


def function(name: str) -> str:
    """Pattern of a function's name."""
    return rf"\b{re.escape(name)}\b"


def scaled(amount: float) -> int:
    """Amount of work at the scale of this run, at least 1."""
    return max(1, round(amount * SCALE))


def folder(name: str) -> Path:
    """Folder for the data of a program, which the runner deletes after the run."""
    place = Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / "public-reports") / name
    place.mkdir(parents=True, exist_ok=True)
    return place


def compute_for(seconds: float) -> None:
    """Use a core for that long, without the GIL."""
    values = np.linspace(0.0, 1.0, 50_000)
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        np.sin(values, out=values)
