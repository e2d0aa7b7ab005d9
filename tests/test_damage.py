"""Every reader and every handler refuses damage in one line, or takes it, and nothing else breaks.

`make fuzz` runs these with many new examples, in a process that may take so much memory and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import lzma
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.simulate_mpi_programs import transposition, written
from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.wire.heartbeats import decode
from dask_efficiency.accounts.wire.snapshots import decode_window
from dask_efficiency.fleet.minder.detector import Minder, MinderFileError, load_minder
from dask_efficiency.fleet.prometheus.prometheus_query import AnswerError, matrix
from dask_efficiency.fleet.rounds.metrics_file import parse_metrics_file
from dask_efficiency.fleet.settings import read_settings
from dask_efficiency.plugin import names
from tests.accounts.wire.test_heartbeats import payload
from tests.accounts.wire.test_snapshots import window_payload
from tests.damage import (
    as_json,
    check_command,
    damaged_archive,
    damaged_bytes,
    damaged_data,
    damaged_lines,
    damaged_members,
    odd,
)
from tests.fleet.minder.test_network import random_autoencoder
from tests.mpi.test_calls import CLUSTER
from tests.payloads import through_msgpack
from tests.plugin.scheduler.test_open_windows import Cluster, cluster
from tests.torch_traces.path.samples import recorded, with_execution

DATA = Path(__file__).parent / "data"

# The folder is the same for all examples of a test: each writes its own file over the last one.
fuzz = settings(suppress_health_check=[*HealthCheck])


def few(part: int) -> settings:
    """Fewer examples, as each takes part of a second, or seconds."""
    return settings(fuzz, max_examples=max(settings().max_examples // part, 2))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


TRACES = [(DATA / name).read_bytes() for name in ("traces/everything.trace", "diagnoses/chain.trace")]
REPORTS = [json.loads((DATA / "diagnoses" / name).read_text()) for name in ("chain.json", "spilling.json")]
KINETO = [json.loads(gzip.decompress((DATA / "kineto" / name).read_bytes())) for name in ("event_sync.json.gz",)]

traces = st.one_of(*[damaged_archive(content, "trace.json") for content in TRACES], damaged_bytes(TRACES[0]))


def check_command_on(name: str, content: bytes, *arguments: object) -> None:
    """Run a command; its arguments name the file, which holds the content."""
    Path(name).write_bytes(content)
    check_command(*arguments)


@few(4)
@given(traces, st.sampled_from([["--html", "x.html"], ["--json"], ["--speedups"], ["--without", "transfer"]]))
def test_a_critical_path_of_a_damaged_trace(content: bytes, arguments: list[str]) -> None:
    check_command_on("run.trace", content, "critical-path", "run.trace", *arguments)


@few(4)
@given(traces)
def test_stragglers_in_a_damaged_trace(content: bytes) -> None:
    check_command_on("run.trace", content, "stragglers", "run.trace")


@few(20)
@given(damaged_archive(TRACES[1], "trace.json"))
def test_a_simulation_of_a_damaged_trace_ends(content: bytes) -> None:
    check_command_on("run.trace", content, "simulate", "run.trace", "--force", "--seeds", 1)


def _saved(value: Any) -> bytes:
    value.save("saved")
    return Path("saved").read_bytes()


@cache
def _paths() -> list[bytes]:
    return [_saved(path) for path in (recorded("event_sync"), recorded("cpu_only"), with_execution())]


@few(4)
@given(st.data(), st.sampled_from([["--html", "x.html", "--chrome", "x.json"], ["--json"], ["--what-if", "e=2.0"]]))
def test_a_damaged_path_of_a_torch_trace(data: st.DataObject, arguments: list[str]) -> None:
    content = data.draw(st.one_of(*[damaged_archive(content, "path.json") for content in _paths()]))
    check_command_on("x.path", content, "torch", "path", "x.path", *arguments)


kineto = st.one_of(*[damaged_data(value).map(as_json) for value in KINETO], damaged_bytes(as_json(KINETO[0])))


@few(8)
@given(kineto, st.booleans(), st.sampled_from([["--html", "x.html", "--chrome", "c.json"], ["--json"]]))
def test_a_damaged_trace_of_a_profiler(content: bytes, zipped: bool, arguments: list[str]) -> None:
    stored = gzip.compress(content, 1) if zipped else content
    check_command_on("rank.json", stored, "torch", "path", "rank.json", *arguments)
    # Of a folder, all ranks are to be there.
    check_command("torch", "path", "rank*.json", "--json")


reports = st.one_of(
    *[damaged_data(value) for value in REPORTS],
    *[damaged_data(value["report"]).map(lambda part, value=value: {**value, "report": part}) for value in REPORTS],
).map(as_json) | damaged_bytes(as_json(REPORTS[0]))


@few(4)
@given(reports, st.sampled_from([["--all"], ["--html", "x.html"], ["--json"]]))
def test_a_damaged_report(content: bytes, arguments: list[str]) -> None:
    check_command_on("r.json", content, "report", "r.json", *arguments)
    check_command("compare", DATA / "diagnoses" / "spilling.json", "r.json")


@few(4)
@given(st.sampled_from([gzip.compress, lzma.compress]).flatmap(lambda pack: damaged_bytes(pack(as_json(REPORTS[0])))))
def test_a_damaged_report_that_was_compressed(content: bytes) -> None:
    check_command_on("r.json.xz", content, "report", "r.json.xz", "--all")


#: Each kind of line that a rank's file has.
PROGRAM = """\
0 init
1 init
#comm A 0 1
0 compute 1e6
1 compute 2e6
0 send 1 0 100 6
1 recv 0 0 100 6
0 isend 1 1 1e6 6
1 irecv 0 1 1e6 6
0 wait 0 1 1
1 wait 0 1 1
0 bcast 100 0 6
1 bcast 100 0 6
0 allreduce 100 1e3 6
1 allreduce 100 1e3 6
0 alltoallv 3 1 2 2 1 1 6 6
1 alltoallv 3 1 2 2 1 1 6 6
0 reducescatter 1 2 100 6
1 reducescatter 1 2 100 6
0 gatherv 1 1 2 0 6 6
1 gatherv 1 1 2 0 6 6
0 barrier
1 barrier
0 finalize
1 finalize
# not traced: MPI_Put 3
"""


@few(4)
@given(damaged_lines(PROGRAM) | damaged_bytes(PROGRAM.encode()), st.booleans())
def test_a_damaged_trace_of_an_mpi_program(content: bytes, zipped: bool) -> None:
    Path("lab.yaml").write_text(CLUSTER)
    stored = gzip.compress(content, 1) if zipped else content
    check_command_on(
        "ranks.txt", stored, *["mpi", "simulate", "ranks.txt", "--cluster", "lab.yaml", "--html", "x.html"]
    )


LAB = (DATA / "simulation" / "lab.yaml").read_text()


@few(4)
@given(damaged_lines(CLUSTER) | damaged_lines(LAB), damaged_lines("pc1:4\npc2:4\n"))
def test_a_damaged_description_of_a_cluster(description: bytes, hostfile: bytes) -> None:
    written(Path(), transposition(2))
    Path("lab.yaml").write_bytes(description)
    Path("hosts").write_bytes(hostfile)
    for more in ((), ("--hostfile", "hosts")):
        check_command("mpi", "simulate", "program.txt", "--cluster", "lab.yaml", *more)


@cache
def _detector() -> bytes:
    return _saved(Minder({"cpu": random_autoencoder(seed=1)}, threshold=5.5, continuity_seconds=61.7))


@fuzz
@given(st.data())
def test_a_damaged_detector(data: st.DataObject) -> None:
    content = data.draw(damaged_bytes(_detector()) | damaged_members(_detector()))
    Path("m.npz").write_bytes(content)
    try:
        found = load_minder("m.npz")
    except MinderFileError as error:
        assert str(error).startswith("m.npz: ")
        return
    windows = np.zeros((2, 8, 1), np.float32)
    assert np.isfinite(found.models["cpu"].reconstruct(windows)).all()


SETTINGS = "every: 1m\nwindow: 20m\nwebhook: http://host:5001/drain\nmetrics-port: 9469\nretire-share: 0.1\n"
METRICS = (
    "step: 15s\nmachine: instance\nmetrics:\n  cpu: {query: up, worse: more, least: 10%}\n  b: {query: 'rate(x[1m])'}\n"
)


@fuzz
@given(damaged_lines(SETTINGS), damaged_lines(METRICS))
def test_damaged_settings_and_metrics_of_a_watch(content: bytes, metrics: bytes) -> None:
    Path("watch.yaml").write_bytes(content)
    text = metrics.decode("utf-8", "surrogatepass")
    for read in (lambda: read_settings("watch.yaml"), lambda: parse_metrics_file(text, "watch.yaml")):
        with contextlib.suppress(ValueError, OSError):
            read()


SERIES = [{"metric": {"instance": name}, "values": [[1.5, "2"], [16.5, "NaN"]]} for name in ("a", "b")]
ANSWER = {"status": "success", "data": {"resultType": "matrix", "result": SERIES}}


@fuzz
@given(damaged_data(ANSWER).map(as_json) | damaged_bytes(as_json(ANSWER)))
def test_a_damaged_answer_of_prometheus(content: bytes) -> None:
    with contextlib.suppress(AnswerError):
        for series in matrix(BytesIO(content)):
            assert len(series.at) == len(series.values)


# -- the wire --------------------------------------------------------------------------------------


@fuzz
@given(damaged_data(payload()) | odd)
def test_a_damaged_heartbeat(message: Any) -> None:
    for each in (message, _sent(message)):
        with contextlib.suppress(RefusedPayload):
            decode(each)


@fuzz
@given(damaged_data(through_msgpack(window_payload())) | damaged_data(window_payload()) | odd)
def test_a_damaged_window(message: Any) -> None:
    for each in (message, _sent(message)):
        with contextlib.suppress(RefusedPayload):
            decode_window(each)


QUESTION = {"window": "w", "client": "me", "span": "span", "trace": True, "only": True, "last": 3.0}
QUESTION |= {"prefixes": {"a": 1}}
ACTIONS = [name for key, name in vars(names).items() if key.isupper() and isinstance(name, str)]


TOPICS = st.sampled_from([names.FINAL_SNAPSHOT, names.BATCHES])
REPLY = {"snapshot": payload(), "window": window_payload(), "processors": [1, 2]}


@few(2)
@given(
    st.lists(st.tuples(st.sampled_from(ACTIONS), damaged_data(QUESTION)), min_size=1, max_size=4),
    st.lists(st.tuples(TOPICS, damaged_data({"windows": {}, "a": []}) | odd)),
    st.lists(damaged_data(REPLY) | odd, max_size=3),
)
def test_damaged_questions_events_and_replies_leave_the_scheduler_answering(
    questions: list[tuple[str, Any]], events: list[tuple[str, Any]], replies: list[Any]
) -> None:
    """Whoever can reach a scheduler may ask it anything; the asker gets the error."""

    async def check() -> None:
        async with cluster() as made:
            await _ask(made, questions)
            for topic, message in events:
                made.plugin.log_event(topic, message)
            for address in list(made.halves):
                for reply in replies:
                    made.meter.accounts.take_answer(address, reply, 0)
            assert made.meter.guard.off is None
            if not made.meter.closed:
                await made.handle(names.OPEN, "own")
                assert "packed" in await made.handle(names.CLOSE, "own")

    asyncio.run(check())


async def _ask(made: Cluster, questions: list[tuple[str, Any]]) -> None:
    for action, asked in questions:
        if isinstance(asked, dict) and action not in (names.PREFLIGHT, names.UNREGISTER):
            arguments = {key: value for key, value in asked.items() if isinstance(key, str) and key != "action"}
            # An error goes back to the caller, as Dask's own handlers do it.
            with contextlib.suppress(Exception):
                await asyncio.wait_for(made.meter.handle(action, **arguments), 60)


def _sent(message: Any) -> Any:
    """As it arrives, if it can be sent."""
    try:
        return through_msgpack(message)
    except (OverflowError, TypeError, ValueError):
        return message
