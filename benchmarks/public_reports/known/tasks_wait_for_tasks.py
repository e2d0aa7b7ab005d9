"""Tasks submit tasks and wait for them, and keep their threads.

source: dask/distributed issue 4738; the same as a hang in flint-crew/flint pull request 406, and in issue 7047
date:   2021-04-23 (7047: 2022-09-20; flint 406: 2026-08-30, hang found and mended)
seen:   tasks that gather the results of tasks they submitted: little goes on at a time, and with as many of them as
        threads nothing goes on at all.
cause:  gather() in a task blocks a thread of the worker; it does not secede, as compute() does.
cure:   secede() and rejoin() around the waiting, which `with worker_client()` does.

Three of four threads wait here, so it is slow and does not hang. No worker is sent a task more than it has threads: one
behind two that wait would make them wait for ever, unless it is stolen.
"""

from __future__ import annotations

from distributed import Client, get_client, worker_client

from benchmarks.public_reports.programs import (
    LOCK,
    LONGER_TASKS,
    TWO_BY_TWO,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
CONFIG = {"distributed.scheduler.worker-saturation": 1.0}
FOLDERS, FILES = 3, scaled(24)

EXPECTED = Expected(
    cause="three of four threads wait in gather() for tasks of their own",
    place="the gather() in convert_folder",
    cure="secede() around the waiting, or worker_client()",
    says=r"wait\w*\b.*\b(tasks?|gather|results?)\b|tasks? .*wait",
    places=(*marked(__file__), function("convert_folder")),
    cures=r"secede|worker_client|from the client|one graph",
    never={LOCK: "there is no lock", LONGER_TASKS: "the tasks take 0.1 s and more"},
)


def convert_file(folder: int, number: int) -> int:
    compute_for(0.1)
    return folder * 1_000 + number


def convert_folder(folder: int) -> int:
    client = get_client()
    files = client.map(convert_file, [folder] * FILES, range(FILES))
    return sum(client.gather(files))  # <- here


def convert_folder_seceded(folder: int) -> int:
    with worker_client() as client:
        files = client.map(convert_file, [folder] * FILES, range(FILES))
        return sum(client.gather(files))


def bad(client: Client) -> float:
    return sum(client.gather(client.map(convert_folder, range(FOLDERS))))


def good(client: Client) -> float:
    return sum(client.gather(client.map(convert_folder_seceded, range(FOLDERS))))
