"""Recipes of the user: text of installed packages, and files that Dask's configuration names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import entry_points

import dask

from dask_efficiency.files.text_files import TextFileError, read_text
from dask_efficiency.report.recipe_text import Recipe, RecipeError, read_recipes
from dask_efficiency.show.log import logger

#: Entry points whose values are recipes as text.
GROUP = "dask_efficiency.recipes"
#: Key of Dask's configuration: a file, or several.
KEY = "efficiency.recipes"


def own_recipes() -> tuple[Recipe, ...]:
    """Recipes of the user: those of the configuration's files, then those of packages; mistakes are logged, once each.

    The files are read once in a process.
    """
    return (*(recipe for path in configured() for recipe in _of_file(path)), *_of_packages())


def configured() -> tuple[str, ...]:
    """Files that the configuration names."""
    value = dask.config.get(KEY, None) or ()
    return tuple(os.path.expanduser(str(path)) for path in (value if isinstance(value, (list, tuple)) else (value,)))


def read_file(path: str) -> tuple[Recipe, ...]:
    """Read the recipes of a file; TextFileError if there is a mistake."""
    try:
        return read_recipes(read_text(path))
    except RecipeError as error:
        raise TextFileError(path, error.line, error.wrong) from error


@lru_cache
def _of_file(path: str) -> tuple[Recipe, ...]:
    try:
        return read_file(path)
    except (OSError, ValueError) as error:  # also a path that can be none
        logger.warning("Recipes of %s are left out: %s", KEY, error)
        return ()


@lru_cache
def _of_packages() -> tuple[Recipe, ...]:
    return tuple(recipe for name, text in _texts() for recipe in _of_text(name, text))


def _texts() -> Iterator[tuple[str, object]]:
    for point in entry_points(group=GROUP):
        try:
            yield point.name, point.load()
        except Exception as error:  # a package's own, as it is imported
            logger.warning("Recipes of the entry point %r are left out: %r", point.name, error)


def _of_text(name: str, text: object) -> tuple[Recipe, ...]:
    try:
        if not isinstance(text, str):
            raise RecipeError(0, f"it is a {type(text).__name__}; expected recipes as text")
        return read_recipes(text)
    except RecipeError as error:
        logger.warning("Recipes of the entry point %r are left out: %s", name, error)
        return ()
