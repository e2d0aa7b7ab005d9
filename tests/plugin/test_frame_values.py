"""Values of variables of frames, read by no means that a program can notice."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from dask_efficiency.plugin.frame_values import values_of

OF_MODULE = 5


def frame_here() -> FrameType:
    return sys._getframe(1)


def test_arguments_variables_cells_and_those_of_the_module_are_found() -> None:
    def found(first: int, *rest: int, named: int = 3) -> dict[str, Any]:
        inner, gone = [first], None
        del gone

        def held() -> list[int]:
            return inner

        names = ("first", "rest", "named", "inner", "held", "gone", "OF_MODULE", "nothing")
        return values_of(frame_here(), names) | {"held": held() is inner}

    expected = {"first": 1, "rest": (2,), "named": 3, "inner": [1], "held": True, "OF_MODULE": 5}
    assert found(1, 2) == expected


def test_generators_and_functions_within_functions_have_theirs() -> None:
    outer = "outer"

    def numbers() -> Iterator[dict[str, Any]]:
        for number in range(2):
            assert outer == "outer"
            assert number < 2
            yield values_of(frame_here(), ("number", "outer"))

    assert [*numbers()] == [{"number": number, "outer": "outer"} for number in range(2)]


def test_code_without_variables_of_its_own_has_those_of_its_module() -> None:
    known: dict[str, Any] = {"values_of": values_of, "frame_here": frame_here, "there": 1}
    exec("found = values_of(frame_here(), ('there', 'nothing'))", known)
    assert known["found"] == {"there": 1}

    class Unreadable(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise RuntimeError(name) if name == "secret" else KeyError(name)

        __contains__ = get = __getitem__  # type: ignore[assignment]

    found: list[dict[str, Any]] = []
    exec("found.append(values_of(frame_here(), ('secret',)))", known | {"found": found}, Unreadable())
    assert found == [{}]


def test_what_code_keeps_of_its_variables_stays_as_it_was() -> None:
    kept = []

    def keeps(number: int) -> dict[str, Any]:
        kept.append(sys._getframe().f_locals)
        before = dict(kept[0])
        number += 1
        assert values_of(frame_here(), ("number",)) == {"number": 2}
        return before

    before = keeps(1)
    if sys.version_info < (3, 13):  # later it is a view of the variables
        assert kept[0] == before


def test_no_reference_stays_behind() -> None:
    value = object()

    def holds(held: object) -> bool:
        return values_of(frame_here(), ("held",))["held"] is held

    before = sys.getrefcount(value)
    found = [holds(value) for _ in range(10)]
    after = sys.getrefcount(value)
    assert (all(found), after) == (True, before)


def test_frames_that_end_meanwhile_do_no_harm() -> None:
    stop = threading.Event()

    def calls(number: int) -> int:
        values = [number] * 10
        return len(values)

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += calls(number)

    threads = [threading.Thread(target=work) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        seen = set()
        for _ in range(2_000):
            for thread in threads:
                frame = sys._current_frames()[thread.ident or 0]
                found = values_of(frame, ("number", "values"))
                seen |= {(name, type(value)) for name, value in found.items()}
                values_of(frame, ("number", "values"))
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()
    assert seen <= {("number", int), ("values", list)}
    assert ("number", int) in seen
