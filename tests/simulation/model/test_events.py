from dask_efficiency.simulation.model.events import EventHeap


def test_events_of_an_instant_happen_in_the_order_of_their_making_and_past_ones_now() -> None:
    clock, done = EventHeap(100), []
    clock.at(200, lambda: clock.at(150, done.append, "late"))
    for name in "ab":
        clock.at(200, done.append, name)
    clock.run()
    assert done == ["a", "b", "late"]
    assert (clock.now, clock.seconds) == (200, 200e-9)


def test_it_runs_until_a_collection_is_empty_or_no_event_is_left() -> None:
    clock, left = EventHeap(), {1, 2}
    for at in (10, 20, 30):
        clock.at(at, left.discard, at // 10)
    assert clock.run(left)
    assert (clock.now, len(clock)) == (20, 1)
    assert not clock.run({"never"})
    clock.at(40, left.clear)
    clock.clear()
    assert not clock.step()


def test_a_function_is_called_periodically_as_long_as_it_is_to_go_on() -> None:
    clock, done = EventHeap(), []
    clock.every(10, lambda: done.append(clock.now), lambda: len(done) < 3)
    assert clock.periodic == 1
    clock.run()
    assert done == [10, 20, 30]
    assert clock.periodic == 0
