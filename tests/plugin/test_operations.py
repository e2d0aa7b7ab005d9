"""Names of the C code in which a thread computes: operators and functions, with the types of what they work on."""

from __future__ import annotations

import inspect
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest
from dask._task_spec import Task

from dask_efficiency.plugin.operations import MANY, Operations
from tests.plugin.watch import eventually

WHOLE = np.arange(2 * MANY).reshape(2, -1)
OBJECTS = WHOLE[0].astype(object)
NUMBERS = list(range(MANY))
TEXT = "a" * MANY


class Stop(Exception):
    """Raised out of an operation, while its frame is looked at."""


class Odd:
    """Something whose operators do as :func:`_at` asks: they are where C code would be."""

    frame: FrameType | None = None

    def _here(self, *_: object) -> None:
        frame = inspect.currentframe()
        assert frame is not None
        type(self).frame = frame.f_back
        raise Stop

    __matmul__ = __rmatmul__ = __add__ = __radd__ = __getitem__ = __setitem__ = __eq__ = __call__ = _here  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


def _at(function: Callable[..., Any], *args: Any) -> FrameType:
    """Frame of a function that is within the operation of an odd value."""
    Odd.frame = None
    with pytest.raises(Stop):
        function(*args)
    assert Odd.frame is not None
    return Odd.frame


odd: Any = Odd()
Odd.findall = Odd.pop = odd  # type: ignore[attr-defined]


def product(left: Any, right: Any) -> Any:
    return left @ right[0].T


def whole_product(left: Any, right: Any) -> Any:
    return left @ right.T


def chained(left: Any, right: Any) -> Any:
    return 1 < len(right) == left


def product_over_lines(left: Any, right: Any) -> Any:
    return (
        left
        @ right
    )  # fmt: skip


def element(values: Any, at: Any) -> Any:
    return values[at]


def assigned(values: Any, to: Any, at: Any) -> Any:
    values[at] = to


def compared(values: Any, to: Any) -> Any:
    return values == to


def called(function: Any, values: Any) -> Any:
    return function(values[0], 3)


def method(pattern: Any, text: Any) -> Any:
    return pattern.findall(text)


def of_module(values: Any) -> Any:
    return sys.odd_sort(values)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _odd_function() -> Iterator[None]:
    sys.odd_sort = odd  # type: ignore[attr-defined]
    yield
    del sys.odd_sort  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("function", "args", "name"),
    [
        (product, (odd, WHOLE), "@(Odd,int64)"),
        (whole_product, (odd, WHOLE), "@(Odd,array(int64))"),
        (product, (odd, [OBJECTS]), "@(Odd)"),  # of what a list has, nothing is known
        (product, (odd, WHOLE.astype("U9")), "@(Odd,text)"),
        (product_over_lines, (odd, OBJECTS), "@(Odd,array(object))"),
        (element, (odd, WHOLE), "getitem(Odd,array(int64))"),
        (assigned, (odd, 1, 0), "setitem(Odd)"),
        (compared, (odd, "a"), "==(Odd,str)"),
        (chained, (odd, "ab"), "==(?,Odd)"),
        (called, (odd, WHOLE.astype(np.float16)), "function(float16,3)"),
        (called, (odd, "ab"), "function(?,3)"),
        (method, (odd, TEXT), "findall(Odd,str)"),
        (of_module, (OBJECTS,), "odd_sort(array(object))"),
    ],
)
def test_an_operation_has_the_types_of_what_it_works_on(
    function: Callable[..., Any], args: tuple[Any, ...], name: str
) -> None:
    assert Operations().name(_at(function, *args), without_gil=True) == name


def test_who_wants_the_gil_back_was_in_c_code_only_if_there_was_much_to_do() -> None:
    operations = Operations()
    assert operations.name(_at(whole_product, odd, WHOLE), without_gil=False) == "@(Odd,array(int64))"
    assert operations.name(_at(whole_product, odd, WHOLE[:, :5]), without_gil=False) == ""
    assert operations.name(_at(product, odd, WHOLE), without_gil=False) == ""  # a part may be small
    assert operations.name(_at(method, odd, TEXT), without_gil=False) == "findall(Odd,str)"
    assert operations.name(_at(method, odd, "few"), without_gil=False) == ""

    def pops(queue: Any, items: Any) -> Any:
        return queue.pop(0, items)

    def pops_last(queue: Any, items: Any) -> Any:
        return queue.pop(-1, items)

    assert operations.name(_at(pops, odd, NUMBERS), without_gil=False) == "pop(Odd,0)"
    assert operations.name(_at(pops_last, odd, NUMBERS), without_gil=False) == ""

    def appends(append: Any) -> Any:
        return append(NUMBERS)

    assert operations.name(_at(appends, odd), without_gil=True) == "append(list)"
    assert operations.name(_at(appends, odd), without_gil=False) == ""


def searches(words: Any, where: Any) -> Any:
    found = []
    for word in words:
        if word in where:
            found.append(word)
        odd()
    return found


def searches_elsewhere(words: Any, where: Any) -> Any:
    for _ in words:
        odd()
    return [word for word in words if word in where]


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (NUMBERS, "in(int,list)"),
        (WHOLE[0], "in(int,array(int64))"),
        (tuple(NUMBERS), "in(int,tuple)"),
        (set(NUMBERS), ""),
        (NUMBERS[:9], ""),
        (TEXT, ""),
    ],
)
def test_a_search_in_the_loop_is_named_if_it_goes_through_many(where: Any, name: str) -> None:
    words = ["a"] if where is TEXT else [7]
    frame = _at(searches, words, where)
    assert Operations().name(frame, without_gil=False) == name
    assert Operations().name(frame, without_gil=True) == "odd"
    assert Operations().name(_at(searches_elsewhere, words, where), without_gil=False) == ""


def test_what_is_built_in_is_named_also_once_the_interpreter_has_specialized_its_calls() -> None:
    operations, stop, warm = Operations(), threading.Event(), threading.Event()

    def sums() -> None:
        texts = [b"ab"] * 1_000
        while not stop.is_set():
            for text in texts:
                zlib.crc32(text)
            texts = [bytes(10_000_000)]
            warm.set()

    def name() -> str:
        frame = sys._current_frames()[thread.ident or 0]
        return operations.name(frame, without_gil=True) if frame.f_code is sums.__code__ else ""

    thread = threading.Thread(target=sums)
    thread.start()
    try:
        assert warm.wait(60)
        eventually(lambda: name() == "crc32(bytes)")
    finally:
        stop.set()
        thread.join()


def test_a_search_that_may_not_be_made_each_time_is_not_named() -> None:
    def seldom(words: Any, where: Any) -> None:
        for word in words:
            if word == "never" and word in where:
                return
            odd()

    assert Operations().name(_at(seldom, ["a"], NUMBERS), without_gil=False) == ""


def test_a_task_of_a_function_of_c_has_its_name_and_what_it_works_on() -> None:
    frame = _at(Task("moved", np.add, odd, WHOLE[0]))
    assert Operations().name(frame, without_gil=True) == "add(Odd,array(int64))"
    assert Operations().name(frame, without_gil=False) == ""  # Python around it may be what takes the time
    assert Operations().name(_at(Task("f", odd, WHOLE[0])), without_gil=True) == ""  # no function that is known


def test_a_class_that_answers_oddly_for_its_own_name_is_named_all_the_same() -> None:
    class Meta(type):
        @property
        def __name__(cls) -> Any:  # type: ignore[override]
            raise Stop

    class Named(metaclass=Meta):
        pass

    assert Operations().name(_at(compared, odd, Named()), without_gil=True) == "==(Odd,Named)"


def test_what_is_no_operation_has_no_name() -> None:
    def plain() -> FrameType | None:
        return inspect.currentframe()

    frame = plain()
    assert frame is not None
    assert Operations().name(frame, without_gil=True) == ""
