"""Threads of one worker fetch documents through a library that has one event loop for its process.

source: fsspec/filesystem_spec issue 488
date:   2020-11-24
seen:   reading from a remote store with sixteen threads in one process takes several times as long as with processes.
        Threads wait for the library's own thread, which is busy with parsing what has come.
cause:  all requests of a process go through one event loop, which also unpacks and checks the answers: these are dealt
        with one after the other, however many threads ask.
cure:   more processes with fewer threads each, so that there are several loops.
"""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from pathlib import Path
from typing import Any

from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    compute_for,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = {"n_workers": 1, "threads_per_worker": 4}
GOOD_CLUSTER = TWO_BY_TWO
DOCUMENTS = scaled(110)
ENTRIES = 24_000

EXPECTED = Expected(
    cause="the threads of the one process wait for its event loop, which parses all answers, one after the other",
    place="fetch, where it waits for the loop, or the parsing in it",
    cure="processes instead of threads",
    says=r"event loop|\bloop\b|(one|single|another|other|same) thread|\bGIL\b|one (process|worker|core)|threads? wait"
    r"|waits? for|waiting|one (at a time|after the other)|in turn",
    places=(
        *marked(__file__),
        function("fetch"),
        function("_answer"),
        function("parsed"),
        function("mentions"),
        r"decoder\.py|json|_base\.py",
    ),
    cures=r"process|more workers|threads_per_worker=1|n_workers|(parse|decode|unpack)\w* .{0,30}(in the task|outside"
    r"|in the thread)|several loops",
    never={
        r"(?i)(add|use|start|try) more threads|more threads (per|in each)": "those there are wait already",
        LONGER_TASKS: "there is enough in each",
        MORE_MEMORY: "a document is small",
        SLEEP: "nobody sleeps in the tasks",
    },
)


def prepare() -> None:
    document = {f"entry {number}": {"mentions": number % 7, "tags": ["a", "b", number]} for number in range(ENTRIES)}
    (folder("documents") / "all.json").write_text(json.dumps(document))


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """Event loop of the library, in its own thread."""
    running = asyncio.new_event_loop()
    threading.Thread(target=running.run_forever, name="library", daemon=True).start()
    return running


def parsed(answer: Path) -> dict[str, Any]:
    return json.loads(answer.read_bytes())  # <- here


async def _answer(place: str) -> dict[str, Any]:
    """Document, as soon as the store has sent it."""
    await asyncio.sleep(0.02)
    return parsed(Path(place))  # <- here


def fetch(place: str) -> dict[str, Any]:
    return asyncio.run_coroutine_threadsafe(_answer(place), loop()).result()  # <- here


def mentions(number: int, place: str) -> int:
    document = fetch(place)  # <- here
    compute_for(0.01)
    return document[f"entry {number}"]["mentions"] + len(document)


def read_all(client: Client) -> float:
    place = str(folder("documents") / "all.json")
    return float(sum(client.gather(client.map(mentions, range(DOCUMENTS), place=place))))  # <- here


def bad(client: Client) -> float:
    return read_all(client)  # <- here


def good(client: Client) -> float:
    return read_all(client)
