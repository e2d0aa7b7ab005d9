"""Printed and Shown: what a result needs to show itself, in a terminal, in a notebook and as a page."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any, ClassVar, Self

from dask_efficiency.show.document import Document
from dask_efficiency.show.html.render import fragment, save_page
from dask_efficiency.show.terminal.coloured import renderables
from dask_efficiency.show.terminal.plain import plain


def fields_of(value: Any) -> dict[str, Any]:
    """A dataclass's fields as the arguments that make it anew; :func:`dataclasses.asdict` would go into them."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


class Printed:
    """A result that prints itself, in words that a module has for it."""

    __slots__ = ()

    #: The module: with ``document`` of it; of what is :class:`Shown`, ``page``, ``verdict`` and ``to_dict`` as well.
    _said_by: ClassVar[Any]

    @property
    def document(self) -> Document:
        """All that is said of it; what a renderer takes."""
        found: Document = self._said_by.document(self)
        return found

    def __repr__(self) -> str:
        return plain(self.document)

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield from renderables(self.document, console, options)

    def _repr_html_(self) -> str:
        return fragment(self.document)


class Shown(Printed):
    """A result that also has a verdict, figures and a page."""

    __slots__ = ()

    @classmethod
    def of(cls, values: Any) -> Self:
        """The same values as a result."""
        return cls(**fields_of(values))

    @property
    def verdict(self) -> str:
        """What it says in one sentence, without a full stop."""
        return str(self._said_by.verdict(self))

    def to_dict(self) -> dict[str, Any]:
        """Its figures as plain data, ready for JSON."""
        found: dict[str, Any] = self._said_by.to_dict(self)
        return found

    def to_html(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write a page that opens offline, to a local path or any fsspec URL."""
        save_page(self._said_by.page(self), path, **storage_options)
