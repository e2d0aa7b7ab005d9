"""Timetables of schools are improved by swaps, each tried on a copy of the whole timetable.

source: trevorstephens/gplearn issue 136; of the same kind: pybamm-team/PyBaMM issue 329, gdsfactory/gdsfactory pull
        request 633
date:   2019-03-12 (329: 2019-05-02; 633: 2022-08-23)
seen:   a program that evolves by mutation takes over a minute; without deep copies it takes some seconds, with the same
        results.
cause:  copy.deepcopy walks over all objects of what it copies, in Python, for a change of one of them.
cure:   change in place and undo what was no improvement, or a shallow copy.
"""

from __future__ import annotations

import copy
from random import Random

from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_MEMORY,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SCHOOLS = scaled(48)
CLASSES, HOURS = 20, 12
STEPS = 1_500

EXPECTED = Expected(
    cause="the whole timetable is copied, object by object, for each swap",
    place="copy.deepcopy() in improved",
    cure="swap in place and swap back, or copy only what changes",
    says=r"deep.?cop(y|ies|ying)|\bcop(y|ies|ying|ied)\b",
    places=(*marked(__file__), function("improved"), function("deepcopy"), r"\bcopy\.py"),
    cures=r"in place|shallow|undo|swap back|without (a |the )?cop(y|ies)|avoid|fewer cop|less|only what|copy\(\)"
    r"|cheaper"
    r"|instead of|do not copy|once|outside the loop|arrays?",
    never={
        MORE_MEMORY: "a timetable is small",
        LOCK: "there is none",
        SLEEP: "nobody sleeps",
    },
)

#: Lessons by class and hour: teacher, room and subject.
Timetable = list[list[dict[str, int]]]


def drawn(random: Random) -> Timetable:
    """Timetable by chance."""
    return [
        [{"teacher": random.randrange(30), "room": random.randrange(25), "subject": hour % 9} for hour in range(HOURS)]
        for _ in range(CLASSES)
    ]


def clashes_at(timetable: Timetable, hour: int) -> int:
    """Lessons of an hour whose teacher or room is taken."""
    lessons = [lessons_of_class[hour] for lessons_of_class in timetable]
    teachers, rooms = {lesson["teacher"] for lesson in lessons}, {lesson["room"] for lesson in lessons}
    return 2 * len(lessons) - len(teachers) - len(rooms)


def swap(timetable: Timetable, which: int, first: int, second: int) -> None:
    lessons = timetable[which]
    lessons[first], lessons[second] = lessons[second], lessons[first]


def step_of(random: Random) -> tuple[int, int, int]:
    first, second = random.sample(range(HOURS), 2)
    return random.randrange(CLASSES), first, second


def improved(school: int) -> int:
    """Clashes that are left."""
    random = Random(school)
    best = drawn(random)
    for _ in range(STEPS):
        which, first, second = step_of(random)
        tried = copy.deepcopy(best)  # <- here
        swap(tried, which, first, second)
        if sum(clashes_at(tried, hour) - clashes_at(best, hour) for hour in (first, second)) < 0:
            best = tried
    return sum(clashes_at(best, hour) for hour in range(HOURS))


def improved_in_place(school: int) -> int:
    """Clashes that are left, without copies."""
    random = Random(school)
    best = drawn(random)
    for _ in range(STEPS):
        which, first, second = step_of(random)
        before = sum(clashes_at(best, hour) for hour in (first, second))
        swap(best, which, first, second)
        if sum(clashes_at(best, hour) for hour in (first, second)) >= before:
            swap(best, which, first, second)
    return sum(clashes_at(best, hour) for hour in range(HOURS))


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(improved, range(SCHOOLS)))))


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(improved_in_place, range(SCHOOLS)))))
