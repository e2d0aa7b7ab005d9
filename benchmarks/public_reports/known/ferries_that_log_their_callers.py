"""Tickets of ferries are checked by many small functions, and a journal notes which of them it was.

source: mlcommons/logging pull request 18; of the same kind: UKGovernmentBEIS/inspect_ai issue 2275, Textualize/rich
        issue 2577, freeorion/freeorion pull request 1716
date:   2020-05-14 (inspect_ai: 2025-08-13; rich: 2022-10-13; freeorion: 2017-09-01)
seen:   a run takes twice as long or more, and a profile shows a helper of the log.
cause:  for the name of its caller the helper asks for the whole stack, with files and lines of source of all frames.
        That takes milliseconds, the more the deeper the stack is, and it is done for each entry.
cure:   look at the one frame that is needed (sys._getframe), or not at all.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable

from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
CROSSINGS, TICKETS = scaled(60), 600

EXPECTED = Expected(
    cause="inspect.stack() for each entry of the journal takes most of the time of check_crossing",
    place="inspect.stack in caller_by_stack, or its callers",
    cure="the one frame by sys._getframe or inspect.currentframe, or no name of the caller",
    says=r"inspect|\bstack\b|\bframes?\b|traceback|caller|getframeinfo|linecache|getmodule|findsource|getsource",
    places=(*marked(__file__), function("caller_by_stack"), r"\binspect\b"),
    cures=r"_getframe|currentframe|one frame|stack\(0\)|context ?= ?0|inspect|f_back|once|fewer|cache|(do not|don't"
    r"|without|instead of|rather than)\b.{0,60}\b(stack|caller|inspect)|by hand|name\b.{0,40}\bargument",
    never={
        COMPUTED_AGAIN: "each task runs once",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        LONGER_TASKS: "tasks are long enough",
        MORE_MEMORY: "there is enough",
        SLEEP: "nothing sleeps",
    },
)


def caller_by_stack() -> str:
    return inspect.stack()[2].function  # <- here


def caller_by_frame() -> str:
    return sys._getframe(2).f_code.co_name


class Journal:
    """Entries by the function they come from."""

    def __init__(self, caller: Callable[[], str]) -> None:
        self.caller = caller
        self.entries: dict[str, int] = {}

    def note(self) -> None:
        name = self.caller()  # <- here
        self.entries[name] = self.entries.get(name, 0) + 1


def fare(ticket: int, journal: Journal) -> float:
    journal.note()  # <- here
    return 4.0 + ticket % 7 * 1.5


def rebate(ticket: int, journal: Journal) -> float:
    if ticket % 5 == 0:
        journal.note()  # <- here
        return 1.0
    return 0.0


def check_crossing(crossing: int, caller: Callable[[], str]) -> float:
    journal = Journal(caller)
    compute_for(0.03)
    total = 0.0
    for ticket in range(TICKETS):
        total += fare(ticket + crossing, journal) - rebate(ticket + crossing, journal)
    return total + journal.entries["fare"] + 2 * journal.entries["rebate"]


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(check_crossing, range(CROSSINGS), caller=caller_by_stack))))


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(check_crossing, range(CROSSINGS), caller=caller_by_frame))))
