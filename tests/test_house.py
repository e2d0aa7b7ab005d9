"""House rules that can be counted: comments of constants, docstrings, lengths of modules, and names of classes."""

from __future__ import annotations

import ast
import re
from collections import Counter

from docs.constants import constants
from tests.trees import PACKAGE, nodes, sources

#: Lines of the longest module.
MAX_LINES = 500

OPENS_FOREIGN = re.compile(r"(What|Whether|How|Who|Where|Why|The same|That)\b")


def test_each_numeric_constant_of_a_module_has_a_comment_with_its_meaning() -> None:
    assert [f"{one.module}:{one.line} {one.name}" for one in constants(PACKAGE) if not one.meaning] == []


def test_each_docstring_opens_with_a_noun_or_a_verb() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for module, tree in nodes().items():
        for node in tree:
            text = ast.get_docstring(node) if isinstance(node, documented) else None
            if text and OPENS_FOREIGN.match(text):
                found.append(f"{module}:{getattr(node, 'lineno', 1)} {text.splitlines()[0]}")
    assert found == []


def test_no_module_is_longer_than_500_lines() -> None:
    lengths = {module: len(source.splitlines()) for module, source in sources().items()}
    assert {module: lines for module, lines in lengths.items() if lines > MAX_LINES} == {}


def test_no_two_public_classes_have_one_name() -> None:
    classes = [
        (module, node.lineno, node.name)
        for module, (top, *_) in nodes().items()
        for node in top.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    counts = Counter(name for _, _, name in classes)
    assert [f"{module}:{line} {name}" for module, line, name in classes if counts[name] > 1] == []
