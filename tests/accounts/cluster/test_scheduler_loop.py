from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.scheduler_loop import (
    HOOK,
    SENDING,
    STEP,
    STREAM,
    KeptTotals,
    LoopFunction,
    LoopTime,
    LoopTotals,
    between,
)
from dask_efficiency.accounts.lines import EVENT_LOOP, Frame, Holdup
from dask_efficiency.accounts.rows import MAX_LISTED as MAX_BLOCKS
from dask_efficiency.accounts.rows import MAX_LISTED as MAX_PARTS
from dask_efficiency.accounts.skew import Sketch

MS = 1_000_000
FINISHED = LoopFunction(STREAM, "task-finished", Frame("Scheduler.handle_task_finished", "scheduler.py", 6008))
RELEASED = LoopFunction(STREAM, "client-releases-keys", Frame("Scheduler.client_releases_keys", "scheduler.py", 5824))
BURNER = LoopFunction(HOOK, "Burner.transition", Frame("Burner.transition", "burner.py", 6))
JOINS = LoopFunction(HOOK, "Burner.add_worker", Frame("Burner.add_worker", "burner.py", 9))
QUOTES = LoopFunction(SENDING, "tasks", Frame("PriceList.quote", "prices.py", 43), "quote", "PriceList")
READING = LoopFunction(STEP, "TCP.read", Frame("TCP.read", "tcp.py", 212))


def test_a_hook_with_some_timed_calls_has_its_share_of_each_handler() -> None:
    then = LoopTotals(at=0, waited=0)
    handlers = {
        # Looked at for 10 of 100 ms, in 2 of 50 calls, of which 6 ms were the plugin's in 12 calls; and in all calls.
        FINISHED: LoopTime(100 * MS, 50, 10 * MS, 2, {BURNER: (6 * MS, 12)}),
        RELEASED: LoopTime(20 * MS, 4, 20 * MS, 4, {BURNER: (5 * MS, 3)}),
    }
    now = LoopTotals(at=1000 * MS, waited=700 * MS, handlers=handlers, hooks={JOINS: (2 * MS, 1)})
    found = between(then, now)
    assert [(part.name, part.seconds, part.calls) for part in found.hooks] == [
        ("Burner.transition", 0.065, 303),
        ("Burner.add_worker", 0.002, 1),
    ]
    assert [(part.name, part.seconds, part.calls) for part in found.handlers] == [
        ("task-finished", 0.1, 50),
        ("client-releases-keys", 0.02, 4),
    ]
    assert found.hooks[0].stack == (BURNER.code,)
    assert (found.handlers_seconds, found.hooks_seconds) == (0.12, 0.067)
    assert (found.seconds, found.busy_seconds) == (1.0, 0.3)


def test_messages_have_their_bytes_and_other_callbacks_their_share_of_the_turns_that_were_looked_at() -> None:
    sizes = Sketch()
    sizes.add([1_000] * 9 + [50_000])
    then = LoopTotals(at=0, waited=0, handlers={QUOTES: LoopTime(5 * MS, 2, total_bytes=2_000)}, looked=20 * MS)
    handlers = {QUOTES: LoopTime(105 * MS, 12, total_bytes=61_000, sizes=sizes.bins), FINISHED: LoopTime(50 * MS, 9)}
    now = LoopTotals(1000 * MS, 700 * MS, handlers=handlers, looked=80 * MS, steps={READING: (18 * MS, 6)})
    found = between(then, now)  # busy for 300 ms, of which 60 were looked at
    assert [(part.title, part.seconds, part.calls) for part in found.handlers] == [
        ("tasks of quote", 0.1, 10),
        ("TCP.read", 0.09, 30),
        ("task-finished", 0.05, 9),
    ]
    quotes = found.handlers[0]
    assert (quotes.carries, quotes.total_bytes) == ("PriceList", 59_000)
    assert (quotes.median_bytes, quotes.largest_bytes) == (
        pytest.approx(1_000, rel=0.01),
        pytest.approx(50_000, rel=0.01),
    )
    # No more than is left beside what is timed at each call.
    most = between(then, replace(now, steps={READING: (60 * MS, 6)}))
    assert most.handlers_seconds == most.busy_seconds == 0.3


def test_a_history_keeps_totals_with_one_array() -> None:
    handlers = {
        FINISHED: LoopTime(100 * MS, 50, 10 * MS, 2, {BURNER: (6 * MS, 12), JOINS: (0, 0)}),
        RELEASED: LoopTime(20 * MS, 4),
        LoopFunction(STREAM, "never", Frame("never", "", 1)): LoopTime(),
        QUOTES: LoopTime(30 * MS, 6, total_bytes=6_000),
    }
    totals = LoopTotals(1000 * MS, 700 * MS, 7, MS, 40 * MS, 30 * MS, handlers, {JOINS: (2 * MS, 1), BURNER: (0, 0)})
    totals = replace(totals, looked=40 * MS, steps={READING: (8 * MS, 4)})
    kept = KeptTotals.of(totals)
    assert len(kept.names) == len(kept.rows) == 9
    later = replace(totals, at=1200 * MS, handlers={**handlers, FINISHED: LoopTime(140 * MS, 60, 20 * MS, 4)})
    assert between(kept.totals, later) == between(totals, later)
    assert between(LoopTotals(0, 0), kept.totals) == between(LoopTotals(0, 0), totals)
    assert KeptTotals.of(LoopTotals(5, None)).totals == LoopTotals(5, None)


def test_what_a_history_keeps_of_messages_is_their_time_and_no_sizes() -> None:
    then = replace(LoopTotals(0, 0), handlers={QUOTES: LoopTime(30 * MS, 0, total_bytes=10, sizes={5: 3})})
    now = replace(LoopTotals(100 * MS, 0), handlers={QUOTES: LoopTime(40 * MS, 2, total_bytes=30, sizes={5: 5})})
    (exact,), (kept,) = between(then, now).handlers, between(KeptTotals.of(then).totals, now).handlers
    assert (kept.seconds, kept.calls, kept.total_bytes) == (exact.seconds, exact.calls, exact.total_bytes)
    assert (exact.median_bytes > 0, kept.median_bytes, kept.largest_bytes) == (True, 0, 0)


def test_an_event_waits_half_a_turn_and_more_come_in_a_longer_one() -> None:
    # Of 1 s, a turn took 200 ms: 100 ms are waited in it, and 0.2 of what comes comes in it.
    found = between(LoopTotals(at=0, waited=0), LoopTotals(at=1000 * MS, waited=800 * MS, squares=(200 * MS) ** 2))
    assert found.lag_seconds == 0.02


def test_only_the_time_of_the_window_counts() -> None:
    handlers, hooks = {FINISHED: LoopTime(100 * MS, 50, 10 * MS, 2, {BURNER: (6 * MS, 12)})}, {JOINS: (2 * MS, 1)}
    then = LoopTotals(100 * MS, 50 * MS, 7, MS, 40 * MS, 30 * MS, handlers, hooks)
    assert between(then, then).handlers == between(then, then).hooks == ()
    handlers = {FINISHED: LoopTime(140 * MS, 60, 20 * MS, 4, {BURNER: (7 * MS, 13)})}
    later = LoopTotals(200 * MS, 70 * MS, 7, 4 * MS, 80 * MS, 40 * MS, handlers, hooks)
    found = between(then, later)
    assert (found.seconds, found.busy_seconds, found.gc_seconds, found.busy_with_work) == (0.1, 0.08, 0.003, 0.75)
    assert [(part.seconds, part.calls) for part in found.handlers] == [(0.04, 10)]
    assert [(part.seconds, part.calls) for part in found.hooks] == [(0.004, 5)]


def test_waiting_for_a_core_is_not_the_loops_own_business() -> None:
    then, handlers = LoopTotals(at=0, waited=0), {FINISHED: LoopTime(60 * MS, 50)}
    work = {"with_work": 50 * MS, "waited_with_work": 5 * MS, "core_with_work": 35 * MS}
    found = between(then, LoopTotals(at=100 * MS, waited=20 * MS, core=40 * MS, handlers=handlers, **work))
    # Of 80 ms outside of `select`, half: so of the handlers' time, too.
    assert (found.busy_seconds, found.handlers_seconds) == (0.04, 0.03)
    assert found.busy_with_work == pytest.approx(0.2)
    assert between(then, LoopTotals(at=100 * MS, waited=90 * MS, core=40 * MS)).busy_seconds == 0.0


def test_busy_time_is_unknown_if_the_loop_does_not_report_its_waits() -> None:
    found = between(LoopTotals(at=0, waited=None), LoopTotals(at=9, waited=None, with_work=5))
    assert (found.busy_seconds, found.lag_seconds, found.busy_with_work) == (None, None, None)
    # Nor without work.
    assert between(LoopTotals(at=0, waited=0), LoopTotals(at=9, waited=5)).busy_with_work is None


def test_the_costliest_parts_and_the_longest_blocks_are_listed() -> None:
    handlers = {FINISHED._replace(name=f"op-{i:02}"): LoopTime(i, 1) for i in range(30)}
    blocks = [Holdup(i, EVENT_LOOP, ()) for i in range(30)]
    found = between(LoopTotals(at=0, waited=0), LoopTotals(at=99, waited=0, handlers=handlers), blocks)
    assert [part.name for part in found.handlers] == [f"op-{i:02}" for i in range(29, 29 - MAX_PARTS, -1)]
    assert [round(block.seconds * 1e9) for block in found.blocks] == [*range(29, 29 - MAX_BLOCKS, -1)]
    assert found.handlers_seconds == sum(range(30)) / 1e9


def test_files_whose_names_are_no_text_can_be_sent() -> None:
    odd = Frame("f", "od\udc80d.py", 1)
    handlers = {FINISHED._replace(code=odd): LoopTime(1, 1)}
    found = between(LoopTotals(0, 0), LoopTotals(9, 0, handlers=handlers), [Holdup(1, EVENT_LOOP, (odd,))])
    assert found.handlers[0].file == found.blocks[0].stack[0].file == "od\\udc80d.py"


@given(st.lists(st.tuples(*[st.integers(0, 10**12)] * 3), max_size=20))
def test_no_hook_takes_more_than_its_handlers(rows: list[tuple[int, int, int]]) -> None:
    handlers = {}
    for i, (rest, looked, of_hook) in enumerate(rows):
        # A hook that is timed is timed within its handler.
        handlers[FINISHED._replace(name=str(i))] = LoopTime(
            looked + rest, 1, looked, 1, {BURNER: (min(of_hook, looked), 1)}
        )
    found = between(LoopTotals(at=0, waited=0), LoopTotals(at=1, waited=0, handlers=handlers))
    assert found.hooks_seconds <= found.handlers_seconds
    assert found.handlers_seconds == sum(rest + looked for rest, looked, _ in rows) / 1e9
