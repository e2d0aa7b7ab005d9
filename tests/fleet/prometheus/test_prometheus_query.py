from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.fleet.prometheus import prometheus_query as module
from dask_efficiency.fleet.prometheus.http_config import HttpConfig
from dask_efficiency.fleet.prometheus.prometheus_query import (
    ATTEMPTS,
    Answered,
    AnswerError,
    NotPrometheusError,
    PrometheusAwayError,
    PrometheusClient,
    QueryRefusedError,
    matrix,
    slices,
)
from dask_efficiency.fleet.prometheus.prometheus_source import PrometheusSource
from dask_efficiency.fleet.rounds.metrics_file import parse_metrics_file
from tests.fleet.prometheus.answering import Answer, answering

FILE = parse_metrics_file("step: 10s\nmetrics:\n  cpu:\n    query: rate(node_cpu_secs{mode='x'}[1m])\n", "m.yaml")


def matrix_of(rows: dict[str, list[tuple[float, float]]]) -> bytes:
    result = [
        {"metric": {"instance": name}, "values": [[at, str(value)] for at, value in points]}
        for name, points in rows.items()
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def refusal(kind: str, wrong: str) -> bytes:
    return json.dumps({"status": "error", "errorType": kind, "error": wrong}).encode()


GOOD = matrix_of({"a": [(1000, 1), (1010, 2)]})


def asked(url: str, *, waited: list[float] | None = None, config: HttpConfig | None = None) -> list[Answered]:
    waits: list[float] = [] if waited is None else waited
    found: list[Answered] = []
    client = PrometheusClient(url, config or HttpConfig(), 5.0, waits.append)
    client.range_query("up", start=1000, stop=1010, step_seconds=10, take=found.append)
    return found


def in_turn(*answers: Answer) -> Callable[[str, bytes], Answer]:
    rest = list(answers)
    return lambda path, body: rest.pop(0) if len(rest) > 1 else rest[0]


def test_a_query_is_a_form_with_its_range() -> None:
    with answering(in_turn((200, GOOD))) as server:
        (series,) = asked(server.url + "/", config=HttpConfig({"X-Scope-OrgID": "me"}, lambda: "Bearer secret"))
    assert series.labels == {"instance": "a"}
    np.testing.assert_array_equal(series.values, [1, 2])
    ((path, headers, _),) = server.asked
    assert path == "/api/v1/query_range"
    assert (headers["Authorization"], headers["X-Scope-Orgid"]) == ("Bearer secret", "me")
    assert server.forms() == [
        {"query": "up", "start": "1000.000", "end": "1010.000", "step": "10.000", "timeout": "5.000"}
    ]


@pytest.mark.parametrize(
    "bad",
    [
        (503, b"busy"),
        (429, refusal("", "too many requests")),
        (503, refusal("timeout", "query timed out")),
        (200, GOOD[:60] + b"<breaks off>"),
        (200, b""),
    ],
)
def test_a_query_is_asked_again_after_an_error_that_may_be_over_soon(bad: Answer) -> None:
    waited: list[float] = []
    with answering(in_turn(bad, bad, (200, GOOD))) as server:
        assert len(asked(server.url, waited=waited)) == 1
    assert waited == [0.5, 1.0]


def test_the_reason_of_a_server_that_stays_away_is_quoted() -> None:
    waited: list[float] = []
    with (
        answering(in_turn((503, b"down for repair"))) as server,
        pytest.raises(PrometheusAwayError, match=r"no Prometheus answers at http.*down for repair"),
    ):
        asked(server.url, waited=waited)
    assert len(server.asked) == ATTEMPTS
    with pytest.raises(PrometheusAwayError, match="refused"):  # nobody listens there now
        asked(server.url, waited=waited)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ((401, b"<html>no</html>"), NotPrometheusError, "HTTP status 401.*expected a Prometheus"),
        ((404, b"<html>no</html>"), NotPrometheusError, "HTTP status 404.*expected a Prometheus"),
        ((400, refusal("bad_data", "parse error at char 3")), QueryRefusedError, "parse error at char 3"),
    ],
)
def test_a_refusal_is_final(answer: Answer, error: type[Exception], message: str) -> None:
    with answering(in_turn(answer)) as server, pytest.raises(error, match=message):
        asked(server.url)
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [400, 503])
def test_what_a_server_says_is_quoted_briefly(status: int) -> None:
    answers = in_turn((status, refusal("execution", "z" * 100_000)))
    with answering(answers) as server, pytest.raises((QueryRefusedError, PrometheusAwayError)) as raised:
        asked(server.url)
    assert len(str(raised.value)) < 1_000


@pytest.mark.parametrize("names", [5, "up", {"up": 1}])
def test_names_of_metrics_that_are_no_list_are_an_error_of_the_server(names: Any) -> None:
    answers = in_turn((200, json.dumps({"data": names}).encode()))
    with answering(answers) as server, pytest.raises(PrometheusAwayError, match="expected names"):
        PrometheusClient(server.url).metric_names()


def test_a_password_is_not_sent_to_the_target_of_a_redirect() -> None:
    with (
        answering(in_turn((200, GOOD))) as elsewhere,
        answering(in_turn((307, elsewhere.url.encode()))) as server,
        pytest.raises(NotPrometheusError, match="HTTP status 307"),
    ):
        PrometheusClient(server.url, HttpConfig(authorization=lambda: "Bearer secret")).metric_names()
    assert elsewhere.asked == []


@pytest.mark.parametrize(
    "url",
    ["host:9090", "me:secret@host", "ftp://host", "http://", "file:///x", "http://me:secret@host", "http://host/?x=1"],
)
def test_a_url_of_no_prometheus_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        PrometheusClient(url)
    assert "secret" not in str(caught.value)


def test_slices_cover_the_range_once() -> None:
    assert list(slices(0, 100, 10, steps=4)) == [(0, 30), (40, 70), (80, 100)]
    assert list(slices(0, 0, 10, steps=4)) == [(0, 0)]
    assert list(slices(10, 0, 10, steps=4)) == []


def source(url: str) -> PrometheusSource:
    return PrometheusSource(PrometheusClient(url, sleep=lambda _: None), FILE)


def test_a_query_of_too_many_samples_is_asked_in_parts() -> None:
    def answer(path: str, body: bytes) -> Answer:
        form = {name: float(parse_qs(body.decode())[name][0]) for name in ("start", "end")}
        if form["end"] - form["start"] > 30:
            return 422, refusal("execution", "query processing would load too many samples into memory")
        points = [(at, at) for at in np.arange(form["start"], form["end"] + 1, 10).tolist()]
        return 200, matrix_of({"a": points})

    with answering(answer) as server:
        series = source(server.url).pull(start=1001, stop=1109)
    assert series.start == 1010
    np.testing.assert_array_equal(series.values[0, 0], np.arange(1010, 1101, 10))


def test_a_query_that_is_always_too_large_is_halved_five_times() -> None:
    def answer(path: str, body: bytes) -> Answer:
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        if float(form["end"]) - float(form["start"]) < 40:
            return 200, GOOD
        return 422, refusal("execution", "query processing would load too many samples into memory")

    with answering(answer) as server, pytest.raises(TextFileError, match="too many samples"):
        PrometheusSource(PrometheusClient(server.url), FILE).pull(start=0, stop=10_000)
    assert len(server.asked) == 6


def test_the_error_of_a_refused_query_has_its_line() -> None:
    with (
        answering(in_turn((400, refusal("bad_data", "parse error")))) as server,
        pytest.raises(TextFileError, match=r"m.yaml, line 4: cpu: Prometheus refuses the query: parse error"),
    ):
        source(server.url).pull(start=0, stop=100)


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (["node_cpu_seconds_total", "up"], "no metric 'node_cpu_secs'; there is: 'node_cpu_seconds_total', 'up'"),
        (["node_cpu_secs"], "the query returned nothing for the last 110s; expected a series a machine, or 'optional:"),
    ],
)
def test_the_error_of_a_query_that_returns_nothing_names_the_metrics_that_there_are(names, wrong) -> None:
    def answer(path: str, body: bytes) -> Answer:
        if "__name__" in path:
            return 200, json.dumps({"status": "success", "data": names}).encode()
        return 200, matrix_of({})

    with answering(answer) as server:
        asking = source(server.url)
        series = asking.pull(start=0, stop=100)
        with pytest.raises(TextFileError, match=r"m.yaml, line 4: cpu: ") as caught:
            asking.check(series)
    assert wrong in str(caught.value)


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
    assert list(matrix(io.BytesIO(answer(indent=indent)))) == []
    for series in found[:-1]:
        np.testing.assert_array_equal(series.at, [1700000000.5, 1700000015.5, 3])
        np.testing.assert_array_equal(series.values, np.array([1.5, np.nan, np.inf], np.float32))


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"<html>not found</html>", b'{"status": "success"}', b'{"data": {"result": "none"}}'),
        *(answer(ONE, TWO)[:-30], answer(ONE)[:120], answer({"metric": {}, "values": [[1, "x"]]})),
        answer({"metric": 3}),
        answer({"metric": {}, "values": [[float("nan"), "1"]]}),
        answer({"metric": {}, "values": [[[1, 2], "1"], [[1, 2], "1"]]}),
    ],
)
def test_an_answer_of_no_range_query_is_an_error(content: bytes) -> None:
    with pytest.raises(AnswerError):
        list(matrix(io.BytesIO(content)))


def test_a_series_that_never_ends_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SERIES_BYTES", 1000)
    head = iter([b'{"data":{"result":[{"metric":{},"values":['])

    class Endless:
        def read(self, amount: int, /) -> bytes:
            return next(head, b'[1,"2"],' * 100)

    with pytest.raises(AnswerError):
        list(matrix(Endless()))
