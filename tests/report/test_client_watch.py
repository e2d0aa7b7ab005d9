import asyncio
from types import SimpleNamespace

import dask
import pytest
from distributed.utils import LoopRunner, sync
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.lines import MAX_GRAPHS
from dask_efficiency.report import client_watch
from dask_efficiency.report.client_watch import (
    MAX_FUTURES,
    ClientObserver,
    ClientPhases,
    ScalingWatch,
    has_outstanding,
    split_phases,
    uploads_until_taken_in,
)
from dask_efficiency.report.values import PHASES
from tests.strategies import SECOND

#: Phases by precedence; stated here once more, to be noticed.
PRECEDENCE = ("run", "schedule", "seceded", "upload", "optimize", "gather", "calls")


def test_phases_at_the_same_time_are_named_after_the_first_in_order():
    # All at once for 10 s; then each ends in turn, the first in order first.
    intervals = {phase: [(0, (10 + i) * SECOND)] for i, phase in enumerate(PRECEDENCE)}
    found = split_phases(intervals, start=0, stop=20 * SECOND)
    assert found == {"optimize": 1, "upload": 1, "schedule": 1, "run": 10, "seceded": 1, "gather": 1, "calls": 1}
    assert list(found) == list(PHASES)
    # An upload goes on until a graph is taken in: the first at 8, the second before the third's 20, the last never.
    sent = [(0, 5), (10, 12), (30, 31)]
    assert uploads_until_taken_in(sent, [(20, 25), (8, 9)]) == [(0, 8), (10, 20), (30, 31)]


@given(
    st.dictionaries(
        st.sampled_from(PHASES), st.lists(st.tuples(st.integers(-3, 23), st.integers(-3, 23)).map(sorted).map(tuple))
    ),
    st.integers(0, 10),
    st.integers(10, 20),
)
def test_every_instant_is_in_the_first_phase_that_goes_on_then(intervals, start, stop):
    expected = dict.fromkeys(PHASES, 0)
    for instant in range(start, stop):
        going_on = {phase for phase, pairs in intervals.items() if any(a <= instant < b for a, b in pairs)}
        for phase in PRECEDENCE:
            if phase in going_on:
                expected[phase] += 1
                break
    assert split_phases(intervals, start=start, stop=stop) == {phase: n / 1e9 for phase, n in expected.items()}


class FakeClient:
    """A client as far as the observer looks at it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, object]] = []

    def get(self, dsk):
        return self._graph_to_futures(dsk, keys=[dsk])

    def compute(self, x):
        return self.get(x)

    persist = compute

    def submit(self, x):
        return self._graph_to_futures(x, [x])

    def map(self, x):
        return self._graph_to_futures(x, ("z", x))

    def _graph_to_futures(self, dsk, keys):
        if dsk == "broken":
            raise RuntimeError(dsk)
        self.sent.append(dask.get_annotations())
        return f"futures of {dsk}"

    async def _gather(self, futures):
        return futures

    def sync(self, function, *args):
        return asyncio.run(function(*args))


@pytest.fixture
def clock(monkeypatch):
    """Each reading is one later than the one before."""
    readings = iter(range(100, 10**6))
    monkeypatch.setattr(client_watch.time, "monotonic_ns", lambda: next(readings))


def observed(client, name="report"):
    observer, report = ClientObserver.of(client), ClientPhases(name, f"span of {name}")
    observer.add(report)
    return observer, report


@pytest.mark.parametrize("method", ["compute", "persist", "submit", "map", "get"])
def test_a_graph_is_optimised_and_then_uploaded(clock, method):
    client = FakeClient()
    _, report = observed(client)
    assert getattr(client, method)("graph") == "futures of graph"
    ((asked, ready),), ((began, stop),) = report.intervals["optimize"], report.intervals["upload"]
    assert asked < ready == began < stop


def test_a_graph_is_sent_while_another_thread_ends_a_report(monkeypatch):
    client = FakeClient()
    observer, first = observed(client)
    _, second = observed(client, "second")
    open_reports = [second, first]

    def ends_a_report(frame):
        observer.remove(open_reports.pop())
        return "etl.py:1", ""

    monkeypatch.setattr(client_watch, "users_line", ends_a_report)
    for _ in range(2):
        assert client.submit("graph") == "futures of graph"
    assert type(client) is FakeClient
    assert [len(report.intervals["upload"]) for report in (first, second)] == [1, 2]


def test_gathering_is_noted_even_where_it_fails(clock):
    client = FakeClient()
    _, report = observed(client)
    assert asyncio.run(client._gather("x")) == "x"
    with pytest.raises(TypeError):
        asyncio.run(client._gather())
    assert len(report.intervals["gather"]) == 2
    assert all(start < stop for start, stop in report.intervals["gather"])


def test_calls_that_wait_for_the_clients_event_loop_are_noted_even_where_they_fail(clock):
    client = FakeClient()
    _, report = observed(client)
    assert client.sync(client._gather, "x") == "x"
    with pytest.raises(TypeError):
        client.sync(client._gather)
    assert len(report.intervals["calls"]) == 2
    for (began, ended), (start, stop) in zip(report.intervals["calls"], report.intervals["gather"], strict=True):
        assert began < start < stop < ended


def test_the_users_lines_that_send_graphs_are_kept_with_their_source(tmp_path, monkeypatch):
    client, typed = FakeClient(), tmp_path / "typed.py"
    monkeypatch.setattr(client_watch, "is_the_users", lambda file: file.startswith(str(tmp_path)))
    _, report = observed(client)
    lines = ['client.compute("mean")', 'client.submit("f")', "for _ in range(3):", '    client.map("mean")']
    typed.write_text("\n".join(lines))
    exec(compile(typed.read_text(), str(typed), "exec"), {"client": client})
    first, second, _, third = ({f"typed.py:{i + 1}": lines[i].strip()} for i in range(4))
    assert report.lines == {"mean": first | third, "f": second}
    exec(compile("\n" * 7 + "client.persist('mean')", str(typed), "exec"), {"client": client})
    assert report.lines["mean"] == first | third | {"typed.py:8": ""}
    for i in range(MAX_GRAPHS + 9):
        client.compute(f"graph {i}")
    assert len(report.lines) == MAX_GRAPHS
    assert client_watch.users_line(None) == ("", "")
    # a long line is cut
    long, text = tmp_path / "long.py", f"client.compute('long')  # {'x' * 300}"
    long.write_text(text)
    _, report = observed(client)
    exec(compile(text, str(long), "exec"), {"client": client})
    assert report.lines == {"long": {"long.py:1": text[:200]}}
    # and a graph without a known line is not put down to the line of others
    monkeypatch.setattr(client_watch, "is_the_users", lambda file: False)
    client.compute("graph")
    assert report.lines["graph"] == {"": ""}


def test_of_the_line_with_most_rounds_it_is_known_if_each_graph_needs_the_one_before(tmp_path, monkeypatch):
    monkeypatch.setattr(client_watch, "is_the_users", lambda file: file.startswith(str(tmp_path)))
    monkeypatch.setattr(client_watch, "has_outstanding", lambda client: False)
    found = {}
    for name, taken in (("iterates", "w"), ("independent", "i")):
        client, script = FakeClient(), tmp_path / f"{name}.py"
        _, report = observed(client)
        script.write_text(f"client.submit('f')\nfor i in range(3):\n    w = client.compute(('mean', {taken})[0])\n")
        exec(compile(script.read_text(), str(script), "exec"), {"client": client, "w": 0})
        found |= report.by_line()
    assert {line: (sent.graphs, sent.needs_last) for line, sent in found.items()} == {
        "iterates.py:1": (1, False),
        "iterates.py:3": (3, True),
        "independent.py:1": (1, False),
        "independent.py:3": (3, False),
    }


def test_a_bounded_number_of_lines_is_kept_per_graph_and_has_spans(monkeypatch):
    client = FakeClient()
    _, report = observed(client)
    for i in range(101):
        monkeypatch.setattr(client_watch, "users_line", lambda frame, i=i: (f"etl.py:{i}", "source"))
        client.compute("mean")
    assert [line in report.lines["mean"] for line in ("etl.py:99", "etl.py:100")] == [True, False]
    assert [sent["span"]["name"] for sent in client.sent[99:]] == [("report", "etl.py:99"), ("report",)]
    assert [bool(report.span_of(f"etl.py:{i}")) for i in (0, 99, 100)] == [True, True, False]


def test_graphs_that_a_library_sends_from_the_event_loop_are_of_the_line_that_waits_for_it():
    runner = LoopRunner(asynchronous=False)
    runner.start()

    async def send():
        return client_watch.users_line(client_watch.waiting_frame())

    try:
        line, source = sync(runner.loop, send)
    finally:
        runner.stop()
    assert (line.partition(":")[0], source) == ("test_client_watch.py", "line, source = sync(runner.loop, send)")
    assert client_watch.waiting_frame() is None


def test_graphs_of_each_line_have_a_span_of_their_own_in_the_reports(monkeypatch):
    client = FakeClient()
    observed(client)
    for line in ("etl.py:1", "etl.py:2", "etl.py:1", ""):
        monkeypatch.setattr(client_watch, "users_line", lambda frame, line=line: (line, "source"))
        client.compute("graph")
    sent = [annotations["span"] for annotations in client.sent]
    lines = [span["name"][1:] for span in sent]
    assert lines == [("etl.py:1",), ("etl.py:2",), ("etl.py:1",), ()]
    assert sent[0] == sent[2]
    assert len({span["ids"][-1] for span in sent}) == 3
    assert ClientPhases("report", "id").span_of("") == ""
    # the user's own span stays
    with dask.annotate(span={"name": ("mine",), "ids": ("1",)}, priority=3):
        client.compute("graph")
    assert client.sent[-1] == {"span": {"name": ("mine",), "ids": ("1",)}, "priority": 3}


def test_after_the_last_report_the_client_is_as_it_was_whatever_names_it_has():
    client, other = FakeClient(), FakeClient()
    before = dict(client.__dict__)
    first, one = observed(client, "one")
    second, two = observed(client, "two")
    assert first is second
    assert isinstance(client, FakeClient)
    assert (type(client).__name__, type(client).__module__) == ("FakeClient", __name__)
    assert type(other) is FakeClient
    client.compute("graph")
    sent = client.sent[0]["span"]
    assert (sent["name"][:2], sent["ids"][:2]) == (("one", "two"), ("span of one", "span of two"))
    first.remove(one)
    assert type(client) is not FakeClient
    with pytest.raises(RuntimeError, match="broken"):
        client.compute("broken")
    assert (len(one.intervals["upload"]), len(two.intervals["upload"])) == (1, 2)
    second.remove(two)
    assert type(client) is FakeClient
    assert client.__dict__.keys() == before.keys()
    assert ClientObserver.of(client) is not first
    client.compute("graph")
    assert client.sent[-1] == {}
    # a client of another release, without the names that are looked for, works on
    older = type("OlderClient", (), {"get": lambda self, dsk: dsk})()
    observer, report = observed(older)
    assert older.get("graph") == "graph"
    observer.remove(report)
    assert type(older).__name__ == "OlderClient"
    assert report.intervals["upload"] == []


def test_requests_for_a_bounded_number_of_workers_are_remembered(clock):
    cluster = SimpleNamespace(plan={"here before"})

    async def scale_up() -> ScalingWatch:
        watch = ScalingWatch(cluster)
        cluster.plan = {"here before", *range(1_001)}
        watch.stop()
        return watch

    watch = asyncio.run(scale_up())
    assert watch.asked_for("here before") is None
    assert sum(watch.asked_for(str(i)) is not None for i in range(1_001)) == 1_000


def test_a_line_in_a_file_whose_name_is_no_utf8_can_travel(tmp_path):
    program = compile("import sys\nfound = users_line(sys._getframe())", f"{tmp_path}/jo\udcffb.py", "exec")
    namespace = {"users_line": client_watch.users_line}
    exec(program, namespace)
    place, _ = namespace["found"]
    assert place == r"jo\udcffb.py:2"


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], False),
        (["finished", "error", "cancelled"], False),
        (["pending", "finished"], True),
        (["pending", *["finished"] * MAX_FUTURES], False),  # an old one that is kept
    ],
)
def test_a_client_waited_if_none_of_its_newest_results_is_outstanding(statuses: list[str], expected: bool) -> None:
    futures = {i: SimpleNamespace(status=status) for i, status in enumerate(statuses)}
    assert has_outstanding(SimpleNamespace(futures=futures)) is expected


def test_futures_that_change_or_are_not_there_count_as_outstanding() -> None:
    class Changing(dict[str, object]):
        def values(self):  # type: ignore[no-untyped-def]
            raise RuntimeError("dictionary changed size during iteration")

    assert has_outstanding(SimpleNamespace(futures=Changing()))
    assert has_outstanding(SimpleNamespace())
