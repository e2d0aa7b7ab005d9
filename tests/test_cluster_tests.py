from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.cluster_tests import PROVES

#: So many fit beside all other tests in the five minutes of `make test`.
MOST = 60

HERE = Path(__file__).parent


def test_every_listed_test_is_there_and_runs_a_cluster() -> None:
    for file, tests in PROVES.items():
        source = (HERE / file).read_text()
        functions = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
        assert {name.partition("[")[0] for name in tests} <= functions, file
        assert "mark.cluster" in source, file


def test_no_more_clusters_are_started_than_a_newcomer_waits_for(request: pytest.FixtureRequest) -> None:
    marks = {item.nodeid: {mark.name for mark in item.iter_markers()} for item in request.session.items}
    run = [name for name, of_item in marks.items() if "cluster" in of_item and "slow" not in of_item]
    assert len(run) <= MOST
    # All that are listed are run, as far as their files are.
    names = {name for item in run for name in (item, item.partition("[")[0])}
    files = {item.partition("::")[0] for item in run}
    listed = {f"tests/{file}::{test}" for file, tests in PROVES.items() for test in tests if f"tests/{file}" in files}
    assert listed <= names
