"""A minute of ``benchmarks/chaos.py``, and its seeds."""

from itertools import islice

import pytest

from benchmarks.chaos import chaos, schedule
from benchmarks.chaos_bed import is_ours
from benchmarks.chaos_events import EVENTS

#: One whose first minute has a worker that is killed, damaged heartbeats, and a loop that is blocked.
SEED = 3558


@pytest.mark.cluster
@pytest.mark.timeout(1_800)  # however busy the machine is
def test_a_minute_of_chaos_leaves_results_right_sums_exact_and_every_loss_named():
    assert chaos(SEED, 60, [*EVENTS]) == []


def test_a_seed_brings_the_same_events_and_draws_again_and_all_before_any_comes_twice():
    def first(seed: int) -> list[tuple[str, float]]:
        return [(name, rng.random()) for name, rng in islice(schedule(seed, [*EVENTS]), 2 * len(EVENTS))]

    assert first(1) == first(1) != first(2)
    assert {name for name, _ in first(1)[: len(EVENTS)]} == set(EVENTS)


def test_a_failure_of_dask_that_passes_through_what_times_it_is_not_ours():
    def frame(path: str, line: str, function: str = "handle") -> str:
        return f'  File "/site-packages/{path}", line 7, in {function}\n    {line}\n           ^^^^^^\n'

    passed_on = frame("dask_efficiency/plugin/worker/fine_metrics.py", "return await handler(*args, **kwargs)")
    upstream = frame("distributed/shuffle/_core.py", "raise self._exception")
    assert not is_ours(passed_on + upstream)
    assert not is_ours(repr(passed_on + upstream + passed_on))
    assert not is_ours(frame("dask_efficiency/plugin/x.py", "return await get(*args, who=who, **kwargs)") + upstream)
    assert not is_ours(frame("dask_efficiency/plugin/scheduler/loop_meter.py", "step()") + upstream)
    own = frame("dask_efficiency/plugin/patches.py", "return handler(key)")
    assert is_ours(passed_on + own)
    assert is_ours(repr(passed_on + own))
    read = frame("dask_efficiency/plugin/messages.py", "found = read(stream, buf)", "timed")
    reset = (
        "ConnectionResetError: [Errno 104] Connection reset by peer\n\nThe above exception was the direct cause of:\n\n"
    )
    assert not is_ours(read + frame("tornado/iostream.py", "return self.socket.recv_into(buf, len(buf))") + reset)
    assert not is_ours(repr(read + frame("tornado/iostream.py", "return self.socket.recv_into(buf, len(buf))") + reset))
    assert is_ours(read + reset + "Traceback (most recent call last):\n" + upstream)
    assert is_ours(read + own)
    assert is_ours("WARNING - a warning of /site-packages/dask_efficiency/plugin/patches.py")
