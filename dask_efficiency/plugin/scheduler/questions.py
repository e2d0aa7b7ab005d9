"""Questions of clients: the fields of each action, checked before anything is done.

Anybody who reaches the scheduler may ask; what is refused goes back to who asked, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from dask_efficiency.accounts.checks import counts, flag, listed, mapping, seconds, text, whole
from dask_efficiency.plugin import names

#: Check of a field: takes its name and value, and returns the value or raises RefusedPayload.
Check = Callable[[str, object], Any]


def _if_given(check: Check, name: str, value: object) -> Any:
    return None if value is None else check(name, value)


def optional(check: Check) -> Check:
    """Make a check that also takes None, which stands for a field that is missing."""
    return partial(_if_given, check)


def _texts(name: str, value: object) -> list[str]:
    return [text(name, one) for one in listed(name, value)]


#: Checks by action and field. Fields beyond these, as newer clients may send, are not read.
_FIELDS: Mapping[str, Mapping[str, Check]] = MappingProxyType(
    {
        names.OPEN: {
            **dict.fromkeys(("window", "client", "span"), text),
            **dict.fromkeys(("trace", "only"), optional(flag)),
        },
        names.CLOSE: {"window": text, "graphs": optional(whole)},
        names.RELEASE: {"client": text, "window": optional(text)},
        names.HISTORY: {"last": optional(seconds)},
        names.SERIES: {"seconds": seconds},
        names.PROFILE: {"window": text, "prefixes": counts},
        names.PREFLIGHT: {"preflight": mapping},
        names.STACKS: {"workers": optional(_texts), "prefix": optional(text), "native": optional(flag)},
        names.ASIDE: {"worker": text, "asked": mapping, "looks": mapping},
    }
)


def checked(action: str, asked: Mapping[str, object]) -> dict[str, Any]:
    """Fields of a question, None for those that are missing and may be; RefusedPayload names one that is odd."""
    return {name: check(name, asked.get(name)) for name, check in _FIELDS.get(action, {}).items()}
