"""Settings of Dask for a simulated run: only those that change a schedule, checked, and none that names code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from dask.utils import parse_bytes, parse_timedelta

from dask_efficiency.runs.trace.settings import SETTINGS, SettingKind

#: Settings that name code to run or import, with Dask's defaults. They are set, not passed as empty arguments of the
#: scheduler: it reads an empty argument as "as configured".
_NAMES_CODE: Mapping[str, Any] = MappingProxyType(
    {
        "distributed.scheduler.preload": [],
        "distributed.scheduler.preload-argv": [],
        "distributed.scheduler.http.routes": [],
        "distributed.scheduler.active-memory-manager.policies": [
            {"class": "distributed.active_memory_manager.ReduceReplicas"}
        ],
    }
)


class SettingError(ValueError):
    """A simulation takes no such setting of Dask, or it cannot have such a value."""


def simulated_settings(recorded: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Make Dask's configuration of a run from an untrusted trace: of settings that change a schedule, and no others."""
    taken = {name: value for name, value in recorded.items() if name in SETTINGS}
    if "bandwidth" in recorded:
        taken["distributed.scheduler.bandwidth"] = recorded["bandwidth"]
    taken.update(changed)
    check_settings(taken)
    return {**taken, **_NAMES_CODE}


def check_settings(config: Mapping[str, Any]) -> None:
    """Refuse settings that change no schedule, and values that Dask cannot use."""
    for name, value in config.items():
        kind = SETTINGS.get(name)
        if kind is None:
            near = get_close_matches(str(name), SETTINGS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(SETTINGS)}"
            raise SettingError(f"a simulation takes no setting {name!r:.80}; {hint}")
        if not _FITS[kind](value):
            raise SettingError(f"{name} is {value!r:.80}; expected {kind.value}")


def _is_number(value: Any) -> bool:
    return value is False or (not isinstance(value, bool) and _reads(float, value) and float(value) >= 0)


def _is_time(value: Any) -> bool:
    # Dask reads "s", and any word that ends in a unit, as one of that unit.
    is_text = isinstance(value, str) and any(character.isdigit() for character in value)
    return value is None or _is_number(value) or (is_text and _reads(parse_timedelta, value))


def _reads(parse: Callable[[Any], Any], value: Any) -> bool:
    try:
        parse(value)
    except (KeyError, TypeError, ValueError, OverflowError):
        return False
    return True


_FITS: Mapping[SettingKind, Callable[[Any], bool]] = {
    SettingKind.SWITCH: lambda value: isinstance(value, bool),
    SettingKind.NUMBER: _is_number,
    SettingKind.SIZE: lambda value: _is_number(value) or (isinstance(value, str) and _reads(parse_bytes, value)),
    SettingKind.TIME: _is_time,
    SettingKind.TIMES: lambda value: (
        isinstance(value, Mapping) and all(isinstance(name, str) and _is_time(time) for name, time in value.items())
    ),
}
