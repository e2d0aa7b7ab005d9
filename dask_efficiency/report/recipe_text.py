"""Recipe: the cure of a known pattern of a library, by the frames that threads are seen in, read from text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from dask_efficiency.accounts.buckets import CAUSE_NAMES, FINALIZED, GOOD, HELD, Bucket
from dask_efficiency.accounts.lines import Frame, Stack, is_the_users
from dask_efficiency.show.figures import harmless
from dask_efficiency.show.finding import MAX_TITLE, MOST

#: Characters of a recipe's advice, so that it fits a line of a screen.
MAX_ADVICE = 106
#: Comparisons of a pattern with a file that are remembered: a guess, to bound memory at some megabytes.
MAX_KNOWN = 50_000
#: Stands for the user's own files, in a pattern.
OWN = "."

#: Stack of a thread, and its weight: nanoseconds, seconds or looks.
Weighted: TypeAlias = Iterable[tuple[Stack, float]]
#: Patterns of a line's file and function: ``("pandas/core/apply.py", "SeriesApply.*")``.
Step: TypeAlias = tuple[str, str]
#: Steps that follow one another on a stack from the outermost frame inwards, others between them.
Pattern: TypeAlias = tuple[Step, ...]
NOTHING: Mapping[str, float] = MappingProxyType({})


class RecipeError(ValueError):
    """A recipe that cannot be read; lines of its text count from 1."""

    def __init__(self, line: int, wrong: str) -> None:
        super().__init__(f"line {line}: {wrong}")
        self.line = line
        self.wrong = wrong


@dataclass(frozen=True, slots=True)
class Recipe:
    """Cure of a known pattern.

    Parameters
    ----------
    name
        Its name: ``"pandas-rows"``.
    title
        Title of the finding, at most :data:`~dask_efficiency.show.finding.MAX_TITLE` characters.
    advice
        A sentence on what to do.
    kinds
        Patterns of the kinds of findings that it is a cure of: ``"thread-noncpu/*"``.
    stacks
        Patterns of stacks: one of them must be in :attr:`share` of the loss.
    also
        Patterns of which one must be in some of it, however little.
    unless
        Patterns of stacks that do not count, though one of ``stacks`` fits.
    sent
        Patterns of the lines that sent the tasks, as reports have them; in place of a stack.
    tasks
        Patterns of the prefixes that must have :attr:`share` of the loss.
    also_tasks
        Patterns of prefixes of which one must have some of it, however little.
    share
        Share of the loss, in (0, 1], that must be exceeded.
    unless_fact
        Names of :data:`FACTS` where the advice does not hold: the kind's own is given then, under this title.
    page
        Page of the documentation.
    """

    name: str
    title: str
    advice: str
    kinds: tuple[str, ...]
    stacks: tuple[Pattern, ...] = ()
    also: tuple[Pattern, ...] = ()
    unless: tuple[Pattern, ...] = ()
    sent: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    share: float = MOST
    unless_fact: tuple[str, ...] = ()
    page: str = ""
    also_tasks: tuple[str, ...] = ()

    def is_of(self, kind: str) -> bool:
        """True if it is a cure of this kind of finding."""
        return any(fnmatchcase(kind, pattern) for pattern in self.kinds)

    def is_in(
        self, stacks: Weighted, prefixes: Mapping[str, float] = NOTHING, lines: Mapping[str, float] = NOTHING
    ) -> bool:
        """True if its patterns are in a loss, by the stacks, prefixes and sending lines that have it, with weights."""
        if (self.stacks or self.sent) and not (self._is_on(stacks) or self._has(self.sent, lines)):
            return False
        if self.also_tasks and not any(_is_one(prefix, self.also_tasks) for prefix in prefixes):
            return False
        return not self.tasks or self._has(self.tasks, prefixes)

    def may_be_in(self, files: Collection[str]) -> bool:
        """True if its stacks can be in a loss whose stacks are in these files: looked up first, as it costs little."""
        return not self.stacks or any(
            all(any(_is_of(file, one) for one in files) for file, _ in pattern) for pattern in self.stacks
        )

    def _is_on(self, stacks: Weighted) -> bool:
        rows = [(stack, weight) for stack, weight in stacks if stack]
        fitting = sum(weight for stack, weight in rows if self.fits(stack))
        if not fitting > self.share * sum(weight for _, weight in rows):
            return False
        return not self.also or any(_any_is_in(self.also, stack) for stack, _ in rows)

    def _has(self, patterns: Iterable[str], names: Mapping[str, float]) -> bool:
        fitting = sum(n for name, n in names.items() if _is_one(name, patterns))
        return fitting > self.share * sum(names.values())

    def fits(self, stack: Stack) -> bool:
        """True if one of its patterns is in a stack."""
        return _any_is_in(self.stacks, stack) and not _any_is_in(self.unless, stack)


def _is_one(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, one) for one in patterns)


def _any_is_in(patterns: Iterable[Pattern], stack: Stack) -> bool:
    return any(_is_in(pattern, stack) for pattern in patterns)


def _is_in(pattern: Pattern, stack: Stack) -> bool:
    frames = iter(stack)
    return all(any(_is_at(step, frame) for frame in frames) for step in pattern)


def _is_at(step: Step, frame: Frame) -> bool:
    file, function = step
    return _is_of(file, frame.file) and any(fnmatchcase(frame.function, one) for one in function.split("|"))


@lru_cache(MAX_KNOWN)
def _is_of(pattern: str, file: str) -> bool:
    own = is_the_users(file)
    if pattern == OWN or (own and not pattern.startswith("*")):  # the user's folder may be called requests, or rich
        return own and pattern == OWN
    # On Windows too, a module's path has slashes here.
    return _of_path(pattern).fullmatch(file.replace("\\", "/")) is not None


@lru_cache(MAX_KNOWN)
def _of_path(pattern: str) -> re.Pattern[str]:
    """Pattern of paths that end like this."""
    return re.compile(f"(?s:.*/)?{translate(pattern)}")


def read_recipes(text: str, page: str = "") -> tuple[Recipe, ...]:
    """Read recipes from text, a block each: name and title, what each line of it says, and the advice.

    Raises
    ------
    RecipeError
        If there is a mistake; it has the line.
    """
    found: dict[str, Recipe] = {}
    block: list[tuple[int, str]] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith("#"):
            continue
        if block and not line[:1].isspace():
            recipe = _recipe(block, page)
            if recipe.name in found:
                raise RecipeError(block[0][0], f"{recipe.name!r} is given twice")
            found[recipe.name] = recipe
            block = []
        if line.strip():
            if not block and line[0].isspace():
                raise RecipeError(number, f"{line.strip()[:80]!r} belongs to no recipe; expected NAME: TITLE before it")
            block.append((number, harmless(line.strip())))
    return tuple(found.values())


def _recipe(block: list[tuple[int, str]], page: str) -> Recipe:
    (first, head), *lines = block
    name, colon, title = (part.strip() for part in head.partition(":"))
    if not colon or not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) or not 0 < len(title) <= MAX_TITLE:
        wrong = f"expected NAME: TITLE, in letters, digits and hyphens, and in up to {MAX_TITLE} characters"
        raise RecipeError(first, f"{head[:80]!r} begins no recipe; {wrong}")
    if not lines:
        raise RecipeError(first, f"{name!r} has no advice; expected it as its last line")
    *given, (number, advice) = lines
    if not advice.endswith(".") or len(advice) > MAX_ADVICE:
        wrong = f"expected a sentence of up to {MAX_ADVICE} characters"
        raise RecipeError(number, f"the advice of {name!r} is {advice[:120]!r}; {wrong}")
    fields: dict[str, list[tuple[int, str]]] = {}
    for number, line in given:
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or key not in _KEYS or not value:
            raise RecipeError(
                number, f"{line[:80]!r} is not known here; expected one of {', '.join(_KEYS)}, as KEY: VALUE"
            )
        fields.setdefault(key, []).append((number, value))
    for number, value in fields.get("unless-fact", ()):
        if unknown := {*value.split()}.difference(FACTS):
            raise RecipeError(number, f"{min(unknown)[:80]!r} is no fact; expected one of {', '.join(FACTS)}")
    for key in ("share", "page"):
        if len(fields.get(key, ())) > 1:
            raise RecipeError(fields[key][1][0], f"{key!r} is given twice")
    if "kinds" not in fields or not fields.keys() & {"stack", "sent", "tasks"}:
        raise RecipeError(first, f"{name!r} is of no use; expected kinds:, and stack:, sent: or tasks:")
    kinds = tuple(kind for one in fields["kinds"] for kind in _kinds(*one))
    of_tasks = (*OF_TASKS, *(("computing",) if "stack" in fields else ()))
    if not any(fnmatchcase(one, kind) for one in of_tasks for kind in kinds):
        for key in ("tasks", *(() if "stack" in fields else ("sent",))):
            if key in fields:
                raise RecipeError(
                    fields[key][0][0], f"{key!r} fits nothing: no task has a loss of kinds {' '.join(kinds)}"
                )
    words = {
        key: tuple(word for _, value in fields.get(key, ()) for word in value.split())
        for key in ("tasks", "also-tasks", "unless-fact")
    }
    patterns = {key: tuple(_pattern(*one) for one in fields.get(key, ())) for key in ("stack", "also", "unless")}
    return Recipe(
        name,
        title,
        advice,
        kinds,
        patterns["stack"],
        patterns["also"],
        patterns["unless"],
        tuple(value for _, value in fields.get("sent", ())),
        words["tasks"],
        _share(*fields["share"][0]) if "share" in fields else MOST,
        words["unless-fact"],
        fields["page"][0][1] if "page" in fields else page and f"{page}#{name}",
        words["also-tasks"],
    )


def _kinds(number: int, text: str) -> Iterator[str]:
    for word in text.split():
        if word not in GROUPS and not any(fnmatchcase(kind, word) for kind in CURED):
            wrong = f"expected one of {', '.join(GROUPS)}, or a kind such as thread-noncpu/*"
            raise RecipeError(number, f"{word[:80]!r} is no kind of finding that recipes are for; {wrong}")
        yield from GROUPS.get(word, (word,))


def _pattern(number: int, text: str) -> Pattern:
    steps = [step.split() for step in text.split(" > ")]
    if not all(1 <= len(step) <= 2 for step in steps):
        wrong = "expected FILE FUNCTION, several of them with > between: pandas/core/*.py SeriesApply.* > *"
        raise RecipeError(number, f"{text[:80]!r} is no pattern of a stack; {wrong}")
    return tuple((step[0], step[1] if len(step) == 2 else "*") for step in steps)


def _share(number: int, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise RecipeError(number, f"share is {text[:80]!r}; expected a number between 0 and 1")
    return share


_KEYS = ("kinds", "stack", "also", "unless", "sent", "tasks", "also-tasks", "share", "unless-fact", "page")
#: Facts of a run: more threads would have nothing to do, and each worker has one thread.
FACTS = ("threads-in-vain", "one-thread-each")
#: Kinds of findings that recipes are for.
CURED = (
    *(str(bucket) for bucket in FINALIZED if bucket not in GOOD),
    *CAUSE_NAMES,
    *("computing", "busy", "loading", "reads-again", "shuffling", "client", "computed-first", "one-by-one", "repeats"),
    "small-tasks",
)
#: Those of which it is known whose tasks have them, or which were sent.
OF_TASKS = (
    *(kind for kind in CURED if kind.partition("/")[0] in {*HELD, Bucket.LOST_WORKER} - {Bucket.OVERHEAD}),
    *("idle/parallelism", "one-by-one", "repeats", "small-tasks"),
)
#: Kinds of findings by a word for several: losses of Python code that runs, of threads that wait, of the client's time,
#: and of event loops that others wait for.
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "python": ("computing", "thread-noncpu/gil"),
        "busy": ("busy", "loading"),
        "waits": (
            *("thread-noncpu", "thread-noncpu/lock", "thread-noncpu/sleep", "thread-noncpu/file"),
            *("thread-noncpu/network", "thread-noncpu/child-process", "thread-noncpu/cluster", "thread-noncpu/unknown"),
        ),
        "client": ("client", "one-by-one"),
        "loops": ("idle/scheduler", "idle/round-trips", "idle/graph", "overhead", "overhead/*"),
    }
)
