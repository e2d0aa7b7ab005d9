"""Imports: every file can be read after those that it names, so no two name each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import dask_efficiency

ROOT = Path(dask_efficiency.__file__).parent


def imports_of(root: Path) -> dict[str, set[str]]:
    """By module of a package, the modules of it that it imports, late or for its types only.

    The package's own ``__init__`` is left out: it names what each public name is, and imports it on first use.
    """
    files = {".".join((root.name, *path.relative_to(root).with_suffix("").parts)): path for path in root.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in files.items()}
    del modules[root.name]
    return {name: set(_imported(path, modules)) for name, path in modules.items()}


def _imported(path: Path, modules: Container[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            module = node.module or ""
            inner = {f"{module}.{alias.name}" for alias in node.names}
            yield from (name if name in modules else module for name in inner if name in modules or module in modules)


def test_no_two_files_import_each_other_not_even_late_or_for_types_only() -> None:
    try:
        TopologicalSorter(imports_of(ROOT)).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


@pytest.mark.parametrize(
    "late",
    [
        "import pack.above",
        "def load():\n    from pack.above import value",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack import above",
    ],
)
def test_a_circle_is_found_however_late_its_last_import_is(tmp_path: Path, late: str) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "above.py").write_text("from pack.below import value\n")
    (package / "below.py").write_text(f"{late}\n")
    with pytest.raises(CycleError):
        TopologicalSorter(imports_of(package)).prepare()


#: Rooms whose tests are run without each wing in turn, by `.ci/without`.
ROOMS = ("cli", "plugin", "report", "runs")
#: Folders that may be missing: no other room imports them.
WINGS = ("fleet", "histories", "live", "mpi", "preflights", "pytest_plugin", "simulation", "torch_traces")


def test_tests_of_rooms_that_stand_without_a_wing_import_none() -> None:
    tests = Path(__file__).parent
    of_a_wing = re.compile(rf"^ *(?:from|import) (?:dask_efficiency|tests)\.(?:{'|'.join(WINGS)})\b", re.M)
    files = [path for room in ROOMS for path in (tests / room).rglob("*.py")]
    assert len(files) > len(ROOMS)
    assert [str(path.relative_to(tests)) for path in files if of_a_wing.search(path.read_text())] == []


def test_only_tests_of_benchmarks_import_benchmarks() -> None:
    tests = Path(__file__).parent
    of_benchmarks = re.compile(r"^ *(?:from|import) benchmarks\b", re.M)
    found = {path.relative_to(tests).parts[0] for path in tests.rglob("*.py") if of_benchmarks.search(path.read_text())}
    assert found == {"benchmarks"}
