"""Settings of Dask: whether there is one of a name, and whether a value can be one of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import dask
import distributed  # noqa: F401  # whose settings are Dask's once it is imported
from dask.utils import parse_bytes, parse_timedelta

_MISSING = object()


class SettingError(ValueError):
    """Dask has no such setting, or it cannot have such a value."""


def check_settings(config: Mapping[str, Any]) -> None:
    """Refuse settings that Dask does not have, and values of another kind than it has itself.

    Raises
    ------
    SettingError
        With the setting, the value, and what was expected.
    """
    for name, value in config.items():
        known = dask.config.get(name, _MISSING) if isinstance(name, str) else _MISSING
        if known is _MISSING:
            near = get_close_matches(str(name), _names(dask.config.config), n=1)
            raise SettingError(f"Dask has no setting {name!r:.80}" + (f"; did you mean {near[0]}?" if near else ""))
        if (expected := _expected(known)) and not _fits(value, known):
            raise SettingError(f"{name} is {value!r:.80}; expected {expected}")


def _names(config: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in config.items():
        yield f"{above}{name}"
        if isinstance(value, dict):
            yield from _names(value, f"{above}{name}.")


def _expected(known: Any) -> str:
    """What a value should be like, by the one that Dask has; empty where nothing can be said."""
    if isinstance(known, bool):
        # What is off may also be on in several ways, such as a limit.
        return "True or False" if known else ""
    if isinstance(known, int | float):
        return f"a number such as {known!r}"
    if _is_time(known):
        return f"a time such as {known}"
    return ""


def _fits(value: Any, known: Any) -> bool:
    if isinstance(known, bool):
        return isinstance(value, bool)
    if isinstance(known, int | float):
        # Many of them are switched off by False or None, and sizes are numbers, too.
        return value is False or value is None or _is_number(value) or _is_size(value)
    return value is None or _is_number(value) or _is_time(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    try:
        return float(value) >= 0
    except (TypeError, ValueError):
        return False


def _is_size(value: Any) -> bool:
    return isinstance(value, str) and _reads(parse_bytes, value)


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and _reads(parse_timedelta, value)


def _reads(parse: Any, text: str) -> bool:
    try:
        parse(text)
    except (KeyError, ValueError):
        return False
    return any(character.isdigit() for character in text)
