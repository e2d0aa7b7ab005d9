from dataclasses import replace

import pytest

from dask_efficiency.accounts.cluster.memory_timeline import MemoryNow
from dask_efficiency.accounts.cluster.time_left import TimeLeft
from dask_efficiency.accounts.stalls import NO_WORKER, StalledWork
from dask_efficiency.live.terminal import coloured, plain
from dask_efficiency.live.top_view import top_view
from tests.live.test_top_view import NOW, SECOND, THEN, VIEW, observation, worker

HOSTILE = ["\x1b[2J\x1b[31mred", "new\nline", "\u202egnp.exe", "漢字" * 30, "x" * 500, "[bold]markup[/bold]", "é"]


def many(count: int):
    """A view in which each worker is a little less useful than the one before."""
    workers = {f"w{i}": worker(thread_cpu=count - i, idle=i + 1) for i in range(count)}
    return top_view(None, observation(1, workers), source="tcp://host:8786")


def test_a_plain_view_of_a_small_cluster():
    assert plain(VIEW, width=80) == (
        "tcp://host:8786  2 workers, 4 threads, 3 tasks on them\n"
        "Last 2.0 s: 50 % efficient; Threads idle: 3.0 s of thread time.\n"
        "[#######################################nnnnnnnnnn.............................]\n"
        "# thread-cpu 2.0  n thread-noncpu 0.5  . idle 1.5\n"
        "Tasks succeeded 20.\n"
        "1. Threads idle: saves up to 750 ms.\n"
        "Since 12.0 s ago: 60 % efficient; Threads idle: 18.0 s of thread time.\n"
        "\n"
        "worker                  threads  useful  largest loss             running  tasks\n"
        "a       [###.........]        2    25 %  idle 75 %                             0\n"
        "b       [#########nnn]        2    75 %  thread-noncpu 25 %                    3"
    )


HELD = {"merge": 600 * 2**20, "read": 200 * 2**20}
MEMORY = MemoryNow(3 * 2**29, 2**30, 3 * 2**30, 4 * 2**30, HELD, "b", 700 * 2**20, 2**30)
USE, FULLEST = "Memory 1.5 of 4.0 GiB", "Fullest: worker b, 0.7 of 1.0 GiB"


def test_what_stands_still_comes_before_the_bar_with_what_to_do():
    stall = StalledWork(NO_WORKER, 4, "train", seconds=12.0, detail="GPU=1, on no worker")
    lines = plain(top_view(THEN, replace(NOW, stalls=(stall,)), source="x"), width=200).splitlines()
    assert lines[2].startswith("1. No worker may run these tasks. 4 tasks of train, for 12.0 s: GPU=1, on no worker.")
    assert lines[2].endswith("or ask for less.")
    assert any(line.startswith("2. Threads idle") for line in lines)


def test_the_time_left_is_in_the_first_line():
    (line, *_) = plain(replace(VIEW, time_left=TimeLeft(240.0, 180.0, 360.0)), width=200).splitlines()
    assert line == "tcp://host:8786  2 workers, 4 threads, 3 tasks on them; about 4 min left, 3 to 6"


CAUSES = {"thread-noncpu/gil": SECOND, "idle/parallelism": 2 * SECOND, "idle/graph": SECOND // 100}


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({"gpus": {"a": {"kernels": 3, "copies": 1, "idle": 6}}}, "1 GPU: kernels 30 %, copies 10 %, idle 60 %."),
        ({"causes": CAUSES}, "Why thread-noncpu: gil 12 %; idle: parallelism 25 %, unknown 12 %."),
        ({"amounts": {"spilled/bytes": 2**20}}, "Data moved: spilled 1.0 MiB."),
        ({"memory": MEMORY}, f"{USE}: managed 1.0 (merge 0.6, read 0.2), unmanaged 0.5, spilled 3.0. {FULLEST}."),
        (
            {"memory": MemoryNow(2**30, 2**30, 20 * 2**20, prefixes={"sum": 2**20})},
            "Memory 1.0 GiB: managed 1.0 (sum 1.0 MiB), unmanaged 0, spilled 20.0 MiB.",
        ),
        ({"memory": MemoryNow(2**30, 2**31)}, "Memory 1.0 GiB: managed 2.0, unmanaged -1.0."),
        ({"killers": {"hog-1": 3}}, "Task hog-1 was in a thread of 3 workers as they were lost."),
        ({"not_sampled": dict.fromkeys("ab", "no /proc")}, "Threads of 2 workers are not sampled: no /proc."),
    ],
)
def test_each_further_figure_has_a_line(known, line):
    view = top_view(THEN, replace(NOW, **known), source="x")
    assert f"\n{line}\n" in plain(view, width=130)
    assert f"\n{line}\n" in str(coloured(view, width=130, height=24))


@pytest.mark.parametrize("width", [10, 30, 40, 55, 80, 140, 300])
@pytest.mark.parametrize("height", [3, 12, 24, 40])
def test_no_view_is_larger_than_the_screen(width, height):
    view = many(60)
    lines = plain(view, width=width, height=height).splitlines()
    rows = coloured(view, width=width, height=height).split("\n")
    assert max(len(lines), len(rows)) <= height
    assert max(*map(len, lines), *(row.cell_len for row in rows)) <= max(width, 30)


def test_where_not_all_workers_fit_the_least_useful_are_shown():
    text = plain(many(60), width=100, height=20)
    assert "least useful of 60 workers" in text
    assert "\nw59 " in text
    assert "\nw0 " not in text
    assert sum(line.startswith("w") for line in plain(many(60)).splitlines()) == 61  # with the head


def test_a_wide_screen_has_every_column_and_a_narrow_one_the_bar():
    assert "tasks" in plain(many(2), width=100).splitlines()[-3]
    narrow = plain(many(2), width=30).splitlines()
    assert narrow[-3].split() == ["worker", "useful"]
    assert "[" in narrow[-1]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_neither_steers_the_terminal_nor_breaks_the_table(name):
    view = top_view(None, observation(1, {name: worker(thread_cpu=1, idle=1)}), source="tcp://\x1b[31m")
    lines, rows = plain(view, width=80).splitlines(), coloured(view, width=80, height=24).split("\n")
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert all(row.plain.isprintable() for row in rows)
    assert max(*map(len, lines), *(row.cell_len for row in rows)) <= 80


def test_joins_departures_silence_and_workers_without_work_are_shown_as_such():
    def shown(**changed):
        return plain(top_view(THEN, replace(NOW, **changed), source=""))

    assert "Joined: n0, n1, n2 and 2 more. Left: a, b." in shown(workers={f"n{i}": worker() for i in range(5)})
    silent = shown(workers=THEN.workers, activity=THEN.activity)
    assert "No heartbeat came in 2.0 s." in silent
    assert "no heartbeat" in silent
    without_work = shown(workers={"a": worker(thread_cpu=5, idle=15, no_work=4)})
    assert without_work.splitlines()[-1].split()[-4:] == ["2", "-", "no-work", "0"]


def test_the_first_view_and_that_of_an_empty_cluster_are_shown():
    text = plain(top_view(None, NOW, source=""))
    assert "Last" not in text
    assert "Since 12.0 s ago" in text
    text = plain(top_view(None, observation(5, {}), source="tcp://host:8786"))
    assert "0 workers, 0 threads" in text
    assert coloured(top_view(None, observation(5, {}), source=""), width=80, height=24).plain


def test_a_small_screen_shows_workers_rather_than_the_past():
    assert "Since" in plain(VIEW, width=80, height=14)
    small = plain(VIEW, width=80, height=10)
    assert "Since" not in small
    assert small.splitlines()[-1].startswith("b ")
