"""Printed, Paged and Shown: base classes of values that show themselves in terminals, notebooks and pages.

The modules that draw or write a value import its class; so the class holds their names, and loads them on first use.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from dask_efficiency.show.document import Document


def late(name: str) -> Any:
    """Import ``"module:name"`` when it is needed."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


class Printed:
    """A value that prints itself, by the functions of its sections module."""

    __slots__ = ()

    #: Module with functions ``document`` and ``headline``; for :class:`Paged` also ``page``, for :class:`Shown`
    #: ``to_dict``.
    _sections_module: ClassVar[str]

    def _from_sections(self, what: str) -> Any:
        return late(f"{self._sections_module}:{what}")(self)

    @property
    def headline(self) -> str:
        """First sentence, in at most 100 characters, without a full stop."""
        return str(self._from_sections("headline"))

    @property
    def document(self) -> Document:
        """Its whole document, the input of renderers."""
        found: Document = self._from_sections("document")
        return found

    @property
    def first_screen(self) -> Document:
        """The part of it that is printed; all of it if that is not long."""
        return self.document

    def __str__(self) -> str:
        from dask_efficiency.show.terminal import plain

        return plain(self.first_screen)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.document.headline}>"

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from dask_efficiency.show.terminal import renderables

        yield from renderables(self.first_screen, console, options)

    def _repr_html_(self) -> str:
        from dask_efficiency.show.html.render import fragment

        return fragment(self.document)


class Paged(Printed):
    """A value that also has a page."""

    __slots__ = ()

    def to_html(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write a page that opens offline, to a local path or any fsspec URL."""
        from dask_efficiency.show.html.render import save_page

        save_page(self._from_sections("page"), path, **storage_options)


class Shown(Paged):
    """A value that also has figures."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Its figures as plain data, ready for JSON."""
        found: dict[str, Any] = self._from_sections("to_dict")
        return found
