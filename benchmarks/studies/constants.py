"""Constants behind a report's first screen, halved and doubled: how many recorded runs are told something else.

``python -m benchmarks.studies.constants [--recorded DIR ...]`` judges the runs of ``tests/data/diagnoses``, or those of
other folders (``python -m benchmarks.public_reports frozen --save DIR`` keeps some), by the rules of today, and again
with half and with twice of each numeric constant that they read. It prints for each how many runs have another first
finding, which is its kind and place, and another first screen, which is every word of it.

A trial has a process of its own, which imports the package with another number in the source: also in what a module
makes of it on import, as defaults and tables. What workers and schedulers do with a constant while a run is measured is
in no record of one: of constants that are not read here, nothing is known.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from docs.constants import PACKAGE, Constant, constants

RECORDED = PACKAGE.parent / "tests" / "data" / "diagnoses"
#: Wings whose rules make the findings of a report.
WINGS = ("report", "show", "accounts")
FACTORS = {"half": 0.5, "double": 2.0}

#: By run: kind and place of its first finding, and its first screen.
Screens = dict[str, tuple[tuple[str, str], str]]
#: A constant, and another value of it.
Change = tuple[Constant, Any]
#: Module and number.
Line = tuple[str, int]


@dataclass(slots=True)
class Tried:
    """Runs that are told something else with half and with twice of a constant, of those that were judged."""

    constant: Constant
    #: By factor, where it gives another value: runs with another first finding, and with another first screen.
    changed: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: By factor: why the rules did without.
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def told_otherwise(self) -> tuple[int, int]:
        """Most runs with another first finding, and with another first screen."""
        firsts, whole = zip((0, 0), *self.changed.values(), strict=True)
        return max(firsts), max(whole)

    def __str__(self) -> str:
        counts = {factor: f"{of[0]} first, {of[1]} screens" for factor, of in self.changed.items() if any(of)}
        said = "; ".join(f"{factor} {words}" for factor, words in (counts | self.failed).items())
        return f"{self.constant.module} {self.constant.name} = {self.constant.value}{': ' if said else ''}{said}"


# -- in the process of a trial ---------------------------------------------------------------------


def import_with(change: Change) -> None:
    """Let this process import a constant's module with another value, bound right after its own."""
    usual, (constant, value) = SourceFileLoader.get_code, change

    def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        if fullname != dotted(constant.module):
            return usual(loader, fullname)
        tree = ast.parse(loader.get_data(loader.path))
        place = next(i for i, node in enumerate(tree.body) if node.lineno == constant.line) + 1
        tree.body[place:place] = ast.parse(f"{constant.name} = {value!r}").body
        return compile(tree, loader.path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]  # nothing else runs here


def screens(folders: Sequence[Path], change: Change | None) -> Screens | str:
    """What is told first of all runs in these folders, or why nothing is."""
    if change is not None:
        import_with(change)
    try:
        from benchmarks.workload_runs import Ran
        from dask_efficiency.report.findings import leading

        found: Screens = {}
        for folder in folders:
            for file in sorted(folder.glob("*.known.json")):
                name = file.name.removesuffix(".known.json")
                report = Ran.load(folder, name).report
                shown = leading(report)
                first = (shown[0].kind, shown[0].where) if shown else ("", "")
                found[f"{folder}/{name}"] = (first, "\n".join((report.headline, *map(str, shown))))
    except Exception as error:  # one that rules do without is an answer too
        return f"{type(error).__name__}: {error}"
    return found


def lines_run(folders: Sequence[Path]) -> tuple[Screens | str, set[Line]]:
    """What is told of these runs, and lines of the package that run until then, imports as well."""
    lines: set[Line] = set()
    home = f"{PACKAGE}{os.sep}"

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if event == "line":
            lines.add((file.removeprefix(home), frame.f_lineno))
        return traced if file.startswith(home) else None

    sys.settrace(traced)
    try:
        return screens(folders, None), lines
    finally:
        sys.settrace(None)


# -- which constants, and what they do --------------------------------------------------------------


def dotted(module: str) -> str:
    """Name under which a module of the package is imported."""
    return f"dask_efficiency.{module.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"


def read_by(lines: set[Line], among: Iterable[Constant]) -> list[Constant]:
    """Those of these constants that are read in one of these lines, by their module or by one that imports them."""
    files = {dotted(name): name for name in (str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))}
    trees = {module: ast.parse((PACKAGE / name).read_text(encoding="utf-8")) for module, name in files.items()}
    imported = {
        (module, alias.asname or alias.name): (node.module or "", alias.name)
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    read = set()
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and (files[module], node.lineno) in lines:
                name = (module, node.id)
                while name in imported:
                    name = imported[name]
                read.add(name)
    return [one for one in among if (dotted(one.module), one.name) in read]


def changed(value: Any, factor: float) -> Any:
    """A constant times a factor; a whole number stays one, and does not become 0."""
    if isinstance(value, tuple):
        return tuple(changed(one, factor) for one in value)
    return round(value * factor) or value if isinstance(value, int) else value * factor


def changes(constant: Constant) -> Iterator[tuple[str, Change]]:
    """Other values of a constant, by factor; none of 0, and of what stands for something, as -1 does."""
    value = getattr(import_module(dotted(constant.module)), constant.name)
    for name, factor in FACTORS.items():
        other = changed(value, factor)
        if other != value and min(value if isinstance(value, tuple) else (value,)) >= 0:
            yield name, (constant, other)


def tried(folders: Sequence[Path], among: Iterable[Constant], usual: Screens) -> list[Tried]:
    """All of these constants, with what halving and doubling them does to the runs in these folders."""
    found = [Tried(one) for one in among]
    trials = [(one, factor, change) for one in found for factor, change in changes(one.constant)]
    with pool(len(os.sched_getaffinity(0))) as workers:
        answers = workers.imap(partial(screens, folders), [change for *_, change in trials])
        for (one, factor, _), answer in zip(trials, answers, strict=True):
            if isinstance(answer, str):
                one.failed[factor] = answer
                continue
            others = [(told[0] != usual[run][0], told != usual[run]) for run, told in answer.items()]
            one.changed[factor] = (sum(first for first, _ in others), sum(screen for _, screen in others))
    return found


def pool(size: int) -> Any:
    """Processes that do one trial each, and have imported Dask, but nothing of this package."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["distributed"])
    return context.Pool(size, maxtasksperchild=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded", nargs="+", type=Path, metavar="DIR", default=[RECORDED], help="folders of runs")
    parser.add_argument("--wings", nargs="+", metavar="WING", default=WINGS, help="folders of the package")
    options = parser.parse_args()
    listed = [one for one in constants() if one.wing in options.wings]
    with pool(1) as worker:
        usual, lines = worker.apply(lines_run, (options.recorded,))
    if isinstance(usual, str):
        sys.exit(usual)
    print(*summary(listed, tried(options.recorded, read_by(lines, listed), usual), len(usual)), sep="\n")


def summary(listed: Sequence[Constant], found: Sequence[Tried], runs: int) -> Iterator[str]:
    """Those that change something, those without which the rules fail, the others, and how many there are of each."""
    changing = [one for one in found if any(one.told_otherwise)]
    failing = [one for one in found if one.failed and one not in changing]
    unchanging = [one for one in found if one.changed and one not in changing and one not in failing]
    rows = {"change a first screen": changing, "are needed as they are": failing, "change nothing": unchanging}
    for title, of_title in rows.items():
        yield from (f"{title}:", *(f"  {one}" for one in of_title))
    read = {(one.constant.module, one.constant.name) for one in found}
    unread = Counter(one.module for one in listed if (one.module, one.name) not in read)
    yield "not read, by module: " + ", ".join(f"{module} {number}" for module, number in unread.items())
    firsts = sum(one.told_otherwise[0] > 0 for one in found)
    tried_ones = sum(bool(one.changed or one.failed) for one in found)
    yield (
        f"{len(listed)} constants, {len(found)} read while {runs} runs are judged, {tried_ones} tried: {len(changing)} "
        f"change a first screen, {firsts} of them a first finding; {len(failing)} are needed as they are; "
        f"{len(unchanging)} change nothing"
    )


if __name__ == "__main__":
    main()
