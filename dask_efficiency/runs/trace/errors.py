"""Errors of questions about a trace."""

from __future__ import annotations

from collections.abc import Iterable


class EmptyTraceError(ValueError):
    """The trace, or the part that was asked for, is empty."""


class UnknownNameError(KeyError):
    """A key, prefix, span, worker or kind (``what``) that the trace, or another ``place``, does not have."""

    def __init__(self, what: str, name: object, known: Iterable[str], place: str = "this trace") -> None:
        super().__init__(what, name)
        self.what = what
        self.name = name
        self.known = tuple(known)
        self.place = place

    def __str__(self) -> str:
        shown = ", ".join(repr(name[:80]) for name in self.known[:20]) or "none"
        more = f" and {len(self.known) - 20} more" if len(self.known) > 20 else ""
        return f"no {self.what} {str(self.name)[:200]!r} in {self.place}; there is: {shown}{more}"
