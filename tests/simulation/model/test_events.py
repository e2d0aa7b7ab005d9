from __future__ import annotations

from dask_efficiency.simulation.model.events import EventHeap


def test_events_of_an_instant_happen_in_the_order_of_their_making_and_what_has_passed_happens_now() -> None:
    clock, done = EventHeap(100), []
    clock.at(200, lambda: clock.at(150, done.append, "late"))
    for name in "ab":
        clock.at(200, done.append, name)
    while clock.step():
        pass
    assert done == ["a", "b", "late"]
    assert (clock.now, clock.seconds) == (200, 200e-9)


def test_it_runs_until_nothing_is_left_or_nothing_can_happen() -> None:
    clock, left = EventHeap(), {1, 2}
    for at in (10, 20, 30):
        clock.at(at, left.discard, at // 10)
    assert clock.run(left)
    assert (clock.now, len(clock)) == (20, 1)
    assert not clock.run({"never"})
    clock.at(40, left.clear)
    clock.clear()
    assert not clock.step()
