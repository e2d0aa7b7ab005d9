"""Loops: program text in which each computation of a loop takes what came of the one before, so that none can go first.

Names are followed through the statements of the innermost loop around a line: what a computation returns, what is
assigned from that, and what it is put into. A loop is told of only if one of these names is in the call that computes
next. What a function does with its arguments is not known, nor is a call that is in another function than its loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dask_efficiency.plugin.source import parsed

#: Calls that send graphs, or wait for their results; and those that put arguments into what they are called of.
_COMPUTES = frozenset({"compute", "persist", "submit", "map", "gather", "result", "load"})
_PUTS = frozenset({"add", "append", "appendleft", "extend", "insert", "put", "setdefault", "update"})
#: Iterations until names of one have reached the next, through as many others. A guess.
ITERATIONS = 4

_LOOPS = ast.For | ast.AsyncFor | ast.While
_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def needs_last(text: str, lineno: int) -> bool:
    """Check if a line of a program computes, in each iteration of a loop, from what it computed in the one before."""
    tree = parsed(text)
    around = [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, _LOOPS | _SCOPES)]
    around = [node for node in around if _is_on(node, lineno)]
    loop = max(around, key=lambda node: (node.lineno, node.col_offset), default=None)
    if not isinstance(loop, _LOOPS) or not any(_is_on(part, lineno) for part in _parts(loop)):
        return False
    flow = _Flow(lineno)
    for _ in range(ITERATIONS):
        flow.iterate(loop)
    return flow.found


def _is_on(node: ast.AST, lineno: int) -> bool:
    first: int = node.lineno  # type: ignore[attr-defined]  # statements and expressions have both
    return first <= lineno <= (getattr(node, "end_lineno", None) or first)


def _parts(loop: ast.For | ast.AsyncFor | ast.While) -> list[ast.AST]:
    return [*loop.body, *([loop.test] if isinstance(loop, ast.While) else [])]


class _Flow:
    """Names that hold what came of a computation on a line."""

    def __init__(self, lineno: int) -> None:
        self._lineno = lineno
        self._names: set[str] = set()
        #: True once such a name is in the call that computes.
        self.found = False

    def iterate(self, loop: ast.For | ast.AsyncFor | ast.While) -> None:
        """Follow one iteration."""
        if isinstance(loop, ast.While):
            self._comes_of(loop.test)
        else:
            self._assign(loop.target, loop.iter)
        self._follow(loop.body)

    def _follow(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            if not isinstance(statement, _SCOPES):
                self._step(statement)

    def _step(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._keep(node.target, self._comes_of(node.value) or self._comes_of(node.target))
        elif isinstance(node, _LOOPS):
            before = {*self._names}
            self.iterate(node)
            self._names |= before  # it may have none
            self._follow(node.orelse)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self._assign(item.optional_vars, item.context_expr)
            self._follow(node.body)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._call(node.value)
        elif isinstance(node, ast.If):
            self._comes_of(node.test)
            self._either(node.body, node.orelse)
        elif isinstance(node, ast.Match):
            self._assign(None, node.subject)
            self._either([], *(case.body for case in node.cases))
        elif isinstance(node, ast.Try):
            self._follow([*node.body, *node.orelse])
            self._either([], *(handler.body for handler in node.handlers))
            self._follow(node.finalbody)
        else:
            for value in (inner for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.expr)):
                self._comes_of(value)

    def _either(self, *blocks: list[ast.stmt]) -> None:
        """Follow blocks of which one runs."""
        before, after = {*self._names}, set[str]()
        for block in blocks:
            self._names = {*before}
            self._follow(block)
            after |= self._names
        self._names = after

    def _call(self, call: ast.Call) -> None:
        """Follow a call for what it does, such as to put its arguments into a list."""
        comes, put = self._comes_of(call), call.func
        if isinstance(put, ast.Attribute) and put.attr in _PUTS and comes:
            self._names.add(ast.unparse(put.value))

    def _assign(self, target: ast.expr | None, value: ast.expr) -> None:
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = [*zip(target.elts, value.elts, strict=True)]
        for (each, _), comes in zip(pairs, [self._comes_of(value) for _, value in pairs], strict=True):
            self._keep(each, comes)

    def _keep(self, target: ast.expr | None, comes: bool) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._keep(each, comes)
        elif isinstance(target, ast.Starred):
            self._keep(target.value, comes)
        elif isinstance(target, ast.Subscript):  # other items stay
            self._names |= {ast.unparse(target.value)} if comes else set()
        elif target is not None:
            (self._names.add if comes else self._names.discard)(ast.unparse(target))

    def _comes_of(self, value: ast.expr) -> bool:
        """Check if a value comes of a computation on the line, and note names that the expression assigns."""
        here = [call for call in _computations(value) if _is_on(call, self._lineno)]
        self.found |= any(self._has(call) for call in here)
        comes = bool(here) or self._has(value)
        for node in ast.walk(value):
            if isinstance(node, ast.NamedExpr):
                self._keep(node.target, self._has(node.value) or bool(here))
        return comes

    def _has(self, value: ast.expr) -> bool:
        """Check if one of the names is in an expression."""
        found = (ast.unparse(node) for node in ast.walk(value) if isinstance(node, ast.Name | ast.Attribute))
        return not self._names.isdisjoint(found)


def _computations(value: ast.expr) -> Iterator[ast.Call]:
    """Calls in an expression that send graphs, or wait for their results."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _COMPUTES:
            yield node
