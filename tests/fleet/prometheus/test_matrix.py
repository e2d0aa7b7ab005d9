"""Series out of JSON that comes in pieces."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.fleet.prometheus import matrix as module
from dask_efficiency.fleet.prometheus.matrix import AnswerError, matrix


class InPieces:
    def __init__(self, content: bytes, size: int) -> None:
        self._file = io.BytesIO(content)
        self._size = size

    def read(self, amount: int, /) -> bytes:
        return self._file.read(min(amount, self._size))


def answer(*series: dict[str, Any], indent: int | None = None) -> bytes:
    content = {"status": "success", "data": {"resultType": "matrix", "result": list(series)}, "stats": {"x": [1]}}
    return json.dumps(content, indent=indent, ensure_ascii=False).encode()


ONE = {"metric": {"instance": 'ä[1]"}]'}, "values": [[1700000000.5, "1.5"], [1700000015.5, "NaN"], [3, "+Inf"]]}
TWO = {"metric": {}, "values": []}


@pytest.mark.parametrize("indent", [None, 1])
@given(size=st.integers(1, 300), count=st.integers(0, 4))
def test_series_are_the_same_however_the_answer_is_cut(indent: int | None, size: int, count: int) -> None:
    found = list(matrix(InPieces(answer(*[ONE] * count, TWO, indent=indent), size)))
    assert [series.labels for series in found] == [ONE["metric"]] * count + [{}]
    for series in found[:-1]:
        np.testing.assert_array_equal(series.at, [1700000000.5, 1700000015.5, 3])
        np.testing.assert_array_equal(series.values, np.array([1.5, np.nan, np.inf], np.float32))


def test_an_empty_answer_has_no_series() -> None:
    assert list(matrix(io.BytesIO(answer()))) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>not found</html>",
        b'{"status": "success"}',
        answer(ONE, TWO)[:-30],
        answer(ONE)[:120],
        answer({"metric": {}, "values": [[1, "x"]]}),
        answer({"metric": 3}),
        b'{"data": {"result": "none"}}',
    ],
)
def test_what_is_no_answer_is_told(content: bytes) -> None:
    with pytest.raises(AnswerError):
        list(matrix(io.BytesIO(content)))


def test_a_series_that_never_ends_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SERIES_BYTES", 1000)

    class Endless:
        def read(self, amount: int, /) -> bytes:
            return b'[1,"2"],' * 100

    with pytest.raises(AnswerError):
        list(matrix(_chained(b'{"data":{"result":[{"metric":{},"values":[', Endless())))


def _chained(head: bytes, rest: Any) -> Any:
    class Chained:
        first = True

        def read(self, amount: int, /) -> bytes:
            if self.first:
                self.first = False
                return head
            return rest.read(amount)

    return Chained()
