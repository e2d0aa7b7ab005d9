import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.lines import EVENT_LOOP, MAX_DEPTH, NO_CORE, Frame, Holdup, Stack, blamed
from dask_efficiency.plugin import loop_blocks
from dask_efficiency.plugin.loop_blocks import LoopBlocks, LoopClocks, LoopLook, heaviest_path
from dask_efficiency.plugin.thread_clocks import ThreadClocks

MS = 1_000_000


def line(function: str, number: int = 1) -> Frame:
    return Frame(function, "x.py", number)


A, B = (line("a"),), (line("b"),)
BUSY, READY = LoopLook(stack=A), LoopLook(stack=A, is_ready=True)
OTHER = LoopLook(gil=500 * MS, stack=B, holder="inc", held_at=A)


class Loop:
    """A server whose event loop ticks when it is told to, is looked at, and its blocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 100.0
        monkeypatch.setattr(loop_blocks, "time", lambda: self.at)
        self.tick = SimpleNamespace(callback_time=20, callback=int)
        server = SimpleNamespace(periodic_callbacks={"tick": self.tick})
        self.found: list[Holdup] = []
        self.sees = LoopLook()
        self.blocks = LoopBlocks(server, lambda: self.sees, self.found.append)

    def look(self, *instants: float, sees: LoopLook | None = None, wanted: bool = True) -> None:
        self.sees = self.sees if sees is None else sees
        for self.at in instants:
            self.blocks.look(wanted)

    def ticks(self, *instants: float) -> None:
        for self.at in instants:
            self.tick.callback()

    @property
    def told(self) -> list[tuple[float, str, Stack]]:
        return [(round(block.ns / 1e9, 6), block.holder, block.stack) for block in self.found]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    loop = Loop(monkeypatch)
    yield loop
    loop.blocks.close()
    assert loop.tick.callback is int


def test_a_block_lasts_from_the_missing_tick_to_the_next_however_late_the_looks_are(loop: Loop) -> None:
    loop.look(100.1, sees=BUSY)
    loop.ticks(100.42, 100.44, 100.7)
    loop.look(100.71)
    assert loop.told == [(0.4, EVENT_LOOP, A), (0.24, EVENT_LOOP, ())]  # the second one came and went unseen
    loop.look(101.0, 101.1)
    loop.ticks(101.3)
    loop.look(101.3)
    assert loop.told[2:] == [(0.58, EVENT_LOOP, A)]


def test_a_loop_that_is_a_little_late_is_not_blocked(loop: Loop) -> None:
    loop.look(100.09, sees=BUSY)
    loop.ticks(100.1)
    loop.look(100.11)
    assert loop.told == []


def test_the_calls_that_most_of_a_block_was_in_are_named(loop: Loop) -> None:
    loop.look(100.1, sees=LoopLook(stack=A))
    loop.look(100.2, 100.3, sees=LoopLook(stack=B))
    loop.ticks(100.4)
    loop.look(100.41)
    assert loop.told == [(0.38, EVENT_LOOP, B)]


@pytest.mark.parametrize(
    ("looks", "holder", "stack"),
    [
        # of 80 ms, 100 ms, 500 ms and 60 ms
        ((LoopLook(70 * MS, stack=B), LoopLook(60 * MS, stack=A), LoopLook(450 * MS, stack=A)), EVENT_LOOP, A),
        ((LoopLook(75 * MS, stack=A), LoopLook(95 * MS, stack=A), LoopLook(490 * MS, stack=A)), NO_CORE, ()),
        ((LoopLook(70 * MS, stack=None), LoopLook(0, stack=None), LoopLook(490 * MS, stack=None)), NO_CORE, ()),
        ((BUSY, OTHER, OTHER), "inc", A),
        ((BUSY, BUSY, LoopLook(gil=450 * MS, stack=B)), EVENT_LOOP, A),
        # nobody is known to have held the GIL for long
        ((LoopLook(gil=900 * MS, stack=B),) * 3, EVENT_LOOP, ()),
        # what it was found at, ready to run, is innocent: it waited for a core all the time
        ((READY, READY, LoopLook(670 * MS, stack=B)), NO_CORE, ()),
        # it slept, and then waited for a core
        ((BUSY, BUSY, LoopLook(670 * MS, stack=B)), EVENT_LOOP, A),
        # there was another wait for a core before the block, and the CPU tells more
        (
            (LoopLook(170 * MS, cpu=60 * MS, stack=A), LoopLook(90 * MS, stack=A), LoopLook(480 * MS, stack=A)),
            NO_CORE,
            (),
        ),
        ((LoopLook(170 * MS, cpu=90 * MS, stack=A), LoopLook(90 * MS, cpu=5 * MS, stack=A)) * 2, EVENT_LOOP, A),
    ],
    ids=[
        *("little of a long block is enough", "too little to block a loop without a crowd", "an idle loop is innocent"),
        *("another thread holds the GIL", "the longest", "the GIL goes from hand to hand"),
        *("waits counted when over", "sleep, then a wait for a core", "CPU from before", "CPU"),
    ],
)
def test_who_did_enough_to_block_the_loop_is_blamed(
    loop: Loop, looks: tuple[LoopLook, ...], holder: str, stack: Stack
) -> None:
    for at, sees in zip((100.1, 100.2, 100.7), looks, strict=False):
        loop.look(at, sees=sees)
    loop.ticks(100.76)
    loop.look(100.76, sees=LoopLook(60 * MS))
    assert loop.told == [(0.74, holder, stack)]


def test_what_a_loop_does_after_it_came_back_late_begins_then(loop: Loop) -> None:
    loop.look(100.1, 100.3, sees=LoopLook(150 * MS, stack=None))
    loop.look(100.4, 100.6, sees=BUSY)
    loop.ticks(100.7)
    loop.look(100.71)
    assert loop.told == [(0.4, EVENT_LOOP, A)]
    loop.look(100.8, 101.0, 101.15, sees=LoopLook(stack=None))
    loop.look(101.23, sees=BUSY)
    loop.ticks(101.24)
    loop.look(101.25)
    assert loop.told[1:] == [(0.52, EVENT_LOOP, ())]  # that part alone is too short to be a block


def test_a_block_between_two_looks_has_no_line_but_may_have_a_holder(loop: Loop) -> None:
    loop.ticks(100.6)
    loop.look(100.61, sees=OTHER)
    loop.ticks(100.62, 101.2)
    loop.look(101.21, sees=BUSY)
    assert loop.told == [(0.58, "inc", A), (0.56, EVENT_LOOP, ())]


def test_a_block_that_nobody_wanted_to_know_of_is_forgotten(loop: Loop) -> None:
    loop.look(100.1, sees=BUSY)
    loop.ticks(150.0)
    loop.look(150.1, wanted=False)
    loop.ticks(200.0)
    loop.look(200.01, wanted=False)
    loop.ticks(200.1)
    loop.look(200.11)
    loop.blocks.tell()
    assert loop.told == []


def test_a_block_that_is_over_at_the_end_of_a_window_is_told_without_another_look(loop: Loop) -> None:
    loop.look(100.1, sees=BUSY)
    loop.ticks(100.3, 100.6)
    loop.blocks.tell()
    assert loop.told == [(0.28, EVENT_LOOP, A), (0.28, EVENT_LOOP, ())]


def test_a_look_between_the_end_of_a_block_and_its_note_changes_nothing(loop: Loop) -> None:
    loop.look(100.1, sees=BUSY)
    loop.blocks._over.append((100.0, 100.5))
    loop.look(100.5)
    loop.blocks._ticked = 100.5
    loop.ticks(100.51)
    loop.look(100.52)
    assert loop.told == [(0.48, EVENT_LOOP, A)]


def test_stacks_are_as_deep_as_others(loop: Loop) -> None:
    loop.look(100.2, sees=LoopLook(stack=tuple(line(f"f{i}") for i in range(200))))
    loop.ticks(100.4)
    loop.look(100.41)
    (_, _, stack), *_ = loop.told
    assert (len(stack), stack[-1].function) == (MAX_DEPTH, "f199")


def test_nothing_breaks_where_upstream_has_no_such_tick() -> None:
    blocks = LoopBlocks(SimpleNamespace(), LoopLook, print)
    blocks.look(wanted=True)
    blocks.close()


def test_most_of_an_import_is_named_though_each_look_sees_another_module() -> None:
    def importing(*lines: Frame) -> Stack:
        return tuple(frame for each in lines for frame in (each, Frame("_find_and_load", "<frozen importlib>", 7)))

    use, package = line("use", 3), Frame("<module>", "/home/me/pkg/__init__.py", 1)
    stacks = {
        (*importing(use, package._replace(line=i)), Frame("<module>", f"/home/me/pkg/m{i}.py", 5)): 1.0
        for i in range(1, 10)
    }
    path = heaviest_path(stacks | {(line("other"),): 2.0})
    assert path == importing(use, package)
    assert blamed(path) == Frame("import", "/home/me/pkg/__init__.py", 1)


_stacks: st.SearchStrategy[Any] = st.dictionaries(
    st.lists(st.builds(line, st.sampled_from("ab"), st.integers(1, 2)), max_size=4).map(tuple), st.floats(0.001, 10)
)


@given(_stacks)
def test_each_call_of_the_heaviest_path_has_most_of_the_weight(stacks: dict[Stack, float]) -> None:
    path = heaviest_path(stacks)
    calls = [frame.function for frame in path]
    inside = math.fsum(
        weight for stack, weight in stacks.items() if [frame.function for frame in stack[: len(path)]] == calls
    )
    assert not path or inside > 0.499 * math.fsum(stacks.values())


def test_a_wait_that_goes_on_is_of_the_rest_until_the_kernel_counts_it() -> None:
    clocks = LoopClocks(0, ThreadClocks(0, 0, 0))
    clocks.read(100, ThreadClocks(10, 30, 0))
    assert (clocks.cpu, clocks.core, clocks.rest) == (10, 30, 60)
    clocks.read(200, ThreadClocks(10, 30, 0))
    assert (clocks.cpu, clocks.core, clocks.rest) == (0, 0, 100)
    clocks.read(300, ThreadClocks(30, 180, 0))
    assert (clocks.cpu, clocks.core, clocks.rest) == (20, 150, -70)
