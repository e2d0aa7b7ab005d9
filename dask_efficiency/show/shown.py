"""Printed, Paged and Shown: what a value needs to show itself, in a terminal, in a notebook and as a page.

A module that says, draws or writes something of a value imports its class; so the class has it by name, and nothing of
it is loaded until somebody looks.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from dask_efficiency.show.document import Document


def late(name: str) -> Any:
    """What ``"module:name"`` stands for, imported when it is asked for."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


class Printed:
    """A value that prints itself, in words that a module has for it."""

    __slots__ = ()

    #: Name of the module: with ``document`` and ``headline`` of it; of what is :class:`Paged`, ``page``; of what is
    #: :class:`Shown`, ``to_dict`` as well.
    _sections_module: ClassVar[str]

    def _from_sections(self, what: str) -> Any:
        return late(f"{self._sections_module}:{what}")(self)

    @property
    def headline(self) -> str:
        """What it says first, in at most 100 characters, without a full stop."""
        return str(self._from_sections("headline"))

    @property
    def document(self) -> Document:
        """All that is said of it; what a renderer takes."""
        found: Document = self._from_sections("document")
        return found

    @property
    def first_screen(self) -> Document:
        """What is printed of it; all of it, where that is not long."""
        return self.document

    def __str__(self) -> str:
        from dask_efficiency.show.terminal.plain import plain

        return plain(self.first_screen)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.document.headline}>"

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from dask_efficiency.show.terminal.coloured import renderables

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
