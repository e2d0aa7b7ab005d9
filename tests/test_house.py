"""House rules that can be counted: on comments of constants, docstrings, lengths of modules, and names of classes.

Violations from before there was a rule are allowed by ``ALLOWED``, by wing (folder of the package); a number there may
only fall.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import dask_efficiency
from docs.constants import constants

PACKAGE = Path(dask_efficiency.__file__).parent

#: Lines of the longest module.
MAX_LINES = 500

#: By rule and wing: violations that are left.
ALLOWED: dict[str, dict[str, int]] = {
    "docstrings": {
        "__init__.py": 1,
        "fleet": 53,
        "live": 74,
        "mpi": 49,
        "preflights": 33,
        "report": 138,
        "runs": 69,
        "simulation": 129,
        "torch_traces": 105,
    },
    "constants": {
        "fleet": 4,
        "live": 5,
        "report": 4,
        "runs": 7,
        "straggler": 2,
        "torch_traces": 2,
    },
    "lengths": {"preflights": 1, "report": 1, "torch_traces": 1},
    "classes": {
        "accounts": 2,
        "fleet": 5,
        "live": 3,
        "mpi": 7,
        "plugin": 1,
        "preflights": 3,
        "report": 11,
        "runs": 18,
        "simulation": 10,
        "straggler": 6,
        "torch_traces": 16,
    },
}

OPENS_FOREIGN = re.compile(r"(What|Whether|How|Who|Where|Why|The same|That)\b")


@cache
def modules() -> dict[str, str]:
    """The source of each module, by its path in the package."""
    return {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def check(rule: str, violations: Iterable[tuple[str, str]]) -> None:
    """Fail with a list where a wing has more violations (module, text) of a rule than it is allowed."""
    by_wing: dict[str, list[str]] = defaultdict(list)
    for module, text in violations:
        by_wing[module.partition("/")[0]].append(f"{module}{text}")
    allowed = ALLOWED.get(rule, {})
    excess = [
        f"{wing}: {len(found)}, {allowed.get(wing, 0)} allowed\n  " + "\n  ".join(found)
        for wing, found in by_wing.items()
        if len(found) > allowed.get(wing, 0)
    ]
    assert not excess, f"{rule}:\n" + "\n".join(excess)


def test_each_numeric_constant_of_a_module_has_a_comment_that_says_what_it_is() -> None:
    check("constants", ((one.module, f":{one.line} {one.name}") for one in constants(PACKAGE) if not one.meaning))


def test_each_docstring_opens_with_a_noun_or_a_verb() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for module, source in modules().items():
        for node in ast.walk(ast.parse(source)):
            text = ast.get_docstring(node) if isinstance(node, documented) else None
            if text and OPENS_FOREIGN.match(text):
                found.append((module, f":{getattr(node, 'lineno', 1)} {text.splitlines()[0]}"))
    check("docstrings", found)


def test_no_module_is_longer_than_500_lines() -> None:
    lengths = {module: len(source.splitlines()) for module, source in modules().items()}
    check("lengths", ((module, f": {lines} lines") for module, lines in lengths.items() if lines > MAX_LINES))


def test_no_two_public_classes_have_one_name() -> None:
    classes = [
        (module, node.lineno, node.name)
        for module, source in modules().items()
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    counts = Counter(name for _, _, name in classes)
    check("classes", ((module, f":{line} {name}") for module, line, name in classes if counts[name] > 1))
