import ast
import sys
from pathlib import Path

import pytest

import dask_efficiency
from dask_efficiency.files.storage import read_csv
from dask_efficiency.runs.trace.schema import Graphs
from tests.report.samples import by_hand

FOLDER = Path(dask_efficiency.__file__).parent


def test_a_table_represents_itself_in_a_line() -> None:
    text = repr(Graphs.empty())
    assert text.startswith("<Graphs: 0 rows of ")
    assert "\n" not in text


def imports_of_pandas(tree: ast.AST, *blocks: type[ast.AST]) -> set[int]:
    """Lines of such blocks that import pandas."""
    inside = (inner for outer in ast.walk(tree) if isinstance(outer, blocks) for inner in ast.walk(outer))
    return {one.lineno for one in inside if isinstance(one, ast.Import) and one.names[0].name == "pandas"}


def test_every_late_import_of_pandas_says_what_to_install_where_it_is_missing() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FOLDER.rglob("*.py")}
    late = {path: imports_of_pandas(tree, ast.FunctionDef, ast.AsyncFunctionDef) for path, tree in trees.items()}
    assert sum(map(len, late.values())) > 10
    assert {path: lines for path, lines in late.items() if lines - imports_of_pandas(trees[path], ast.With)} == {}


def test_without_pandas_a_table_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    (tmp_path / "tasks.csv").write_text("worker\n")
    for table in (Graphs.empty().to_frame, by_hand().to_frame, lambda: read_csv(str(tmp_path / "tasks.csv"))):
        with pytest.raises(ImportError, match=r"needs? pandas: pip install"):
            table()
