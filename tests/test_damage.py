"""Every reader and every handler refuses damage in one line, or takes it, and nothing else breaks.

`make fuzz` runs these with many new examples, in a process that may take so much memory and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import lzma
import time
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.wire.heartbeats import decode
from dask_efficiency.accounts.worker.answer import decode_answer
from dask_efficiency.fleet.minder.detector import Minder, MinderFileError, load_minder
from dask_efficiency.fleet.prometheus.prometheus_query import AnswerError, matrix
from dask_efficiency.fleet.rounds.metrics_file import parse_metrics_file
from dask_efficiency.fleet.settings import read_settings
from dask_efficiency.plugin import names
from dask_efficiency.report.replies import unpacked
from tests.accounts.wire.test_heartbeats import payload
from tests.accounts.worker.test_answer import payload as window_payload
from tests.damage import (
    as_json,
    check_command,
    damaged_archive,
    damaged_bytes,
    damaged_data,
    damaged_lines,
    odd,
)
from tests.fleet.minder.test_network import random_autoencoder
from tests.mpi.programs import transposition, written
from tests.mpi.test_calls import CLUSTER
from tests.payloads import through_msgpack, time_of_workers
from tests.plugin.scheduler.test_accounts import worker
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
    return _saved(Minder({"cpu": random_autoencoder(seed=1)}))


@fuzz
@given(st.data())
def test_a_damaged_detector(data: st.DataObject) -> None:
    content = data.draw(damaged_bytes(_detector()) | damaged_archive(_detector(), "minder.json"))
    Path("m.model").write_bytes(content)
    try:
        found = load_minder("m.model")
    except MinderFileError as error:
        assert str(error).startswith("m.model: ")
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
            decode_answer(each)


QUESTION = {"window": "w", "client": "me", "span": "span", "trace": True, "only": True, "last": 3.0, "seconds": 3.0}
QUESTION |= {"prefixes": {"a": 1}}
ACTIONS = [name for key, name in vars(names).items() if key.isupper() and isinstance(name, str)]
ACTIONS = [action for action in ACTIONS if action not in (names.PREFLIGHT, names.UNREGISTER)]
#: Of the workers there, the first is gone and the last is odd.
ADDRESSES = [f"tcp://10.0.0.{number}:40000" for number in (1, 2, 9)]
FINAL = {"session": "", "worker": ADDRESSES[0], "snapshot": payload(), "windows": {"w": window_payload()}}
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("scheduler", {"action": "worker-ttl-timed-out", "workers": ADDRESSES, "ttl": 300.0}),
    ("worker-restart-memory", {"worker": ADDRESSES[1], "pid": 1, "rss": 960}),
    (names.FINAL_SNAPSHOT, FINAL | {"processors": [1, 2], "stays_off": ["x"]}),
    (names.BATCHES, {"windows": {}, "a": []}),
]
for each in ADDRESSES:
    removal = {"action": "remove-worker", "stimulus_id": "nanny-close-1.5", "expected": True}
    EVENTS += [
        (each, {"action": "closing-worker", "reason": "worker-close-1.5"}),
        (each, removal | {"processing-tasks": ["a-1", ["b", 2]]}),
        (each, {"action": "worker-status-change", "status": "paused"}),
    ]
REPLY = {"snapshot": payload(), "window": window_payload(), "processors": [1, 2]}
DASKS = {"cpu": 3.0, "memory": 1, "managed_bytes": 1, "spilled_bytes": {"disk": 1}, "event_loop_interval": 0.02}
DASKS |= {"host_net_io": {"read_bps": 1.0}}
REGISTRATION = {"nthreads": 2, "name": "odd", "server_id": "s", "memory_limit": 10**9, "nanny": "tcp://n", "pid": 7}
REGISTRATION |= {"resources": {"GPU": 1.0}, "extra": {"gpu": {"name": "H100"}}}
LOG = [["INFO", "Worker process 7 was killed by signal 9"], ["INFO", "x"]]

events = st.sampled_from(EVENTS).flatmap(lambda one: st.tuples(st.just(one[0]), damaged_data(one[1]) | odd))
heartbeats = st.tuples(damaged_data(payload()) | odd, damaged_data(DASKS))
messages = st.one_of(
    st.tuples(st.just("question"), st.sampled_from(ACTIONS), damaged_data(QUESTION)),
    st.tuples(st.just("event"), events),
    st.tuples(st.just("reply"), st.sampled_from(ADDRESSES), damaged_data(REPLY) | odd),
    st.tuples(st.just("registration"), damaged_data(REGISTRATION)),
    st.tuples(st.just("heartbeat"), st.sampled_from(ADDRESSES), heartbeats),
    st.tuples(st.just("nanny"), st.sampled_from(ADDRESSES), damaged_data(LOG) | odd),
    st.tuples(st.just("client"), odd, odd),
)


@few(2)
@given(st.lists(messages, min_size=1, max_size=8))
def test_after_any_damaged_messages_the_scheduler_meters_and_a_good_window_is_exact(program: list[Any]) -> None:
    """Whoever can reach a scheduler may send it anything; who asks gets the error, and nobody else notices."""

    async def check() -> None:
        async with cluster() as made:
            for what, *message in program:
                await _MESSAGES[what](made, *message)
                made.meter.accounts.poll()
                made.meter.accounts.idle.sample()
            await _check_meter(made)

    asyncio.run(check())


async def _check_meter(made: Cluster) -> None:
    """Check that nothing is off, and that each nanosecond of the good workers counts."""
    meter = made.meter
    assert (meter.guard.off, meter.parts.failures(), meter.accounts.idle.guard.off) == (None, [], None)
    assert (meter.accounts.stragglers._guard.off, meter.closed) == (None, False)
    assert meter.parts.get("metrics")._failed == ""
    recorder = meter.parts.get("recording").recorder
    assert recorder is None or recorder.off is None
    await made.handle(names.OPEN, "own")
    reply = unpacked(await made.handle(names.CLOSE, "own"))
    expected = {half.ws.name: half.closed["own"] for half in made.halves.values()}
    assert {name: sum(time_of_workers(reply)[name].values()) for name in expected} == expected
    assert "packed" in await made.meter.handle(names.LIFE)


async def _question(made: Cluster, action: str, asked: Any) -> None:
    if isinstance(asked, dict):
        arguments = {key: value for key, value in asked.items() if isinstance(key, str) and key != "action"}
        # An error goes back to the caller, as Dask's own handlers do it.
        with contextlib.suppress(Exception):
            await asyncio.wait_for(made.meter.handle(action, **arguments), 60)


async def _event(made: Cluster, event: tuple[str, Any]) -> None:
    topic, message = event
    if isinstance(message, dict) and message.get("session") == "":
        message["session"] = made.meter.session
    made.plugin.log_event(topic, message)


async def _reply(made: Cluster, address: str, reply: Any) -> None:
    made.meter.accounts.take_answer(address, reply, time.monotonic_ns())


async def _registration(made: Cluster, fields: Any) -> None:
    odd_one: Any = worker(9, made.scheduler)
    for name, value in fields.items() if isinstance(fields, dict) else ():
        if name in REGISTRATION:
            setattr(odd_one, name, value)
    if odd_one.address in made.scheduler.workers:
        del made.scheduler.workers[odd_one.address]
        made.plugin.remove_worker(made.scheduler, odd_one.address, stimulus_id="nanny-close-1.5")
    made.scheduler.workers[odd_one.address] = odd_one
    made.plugin.add_worker(made.scheduler, odd_one.address)


async def _heartbeat(made: Cluster, address: str, heartbeat: tuple[Any, Any]) -> None:
    ours, dasks = heartbeat
    if (ws := made.scheduler.workers.get(address)) is not None:
        ws.metrics = {**(dasks if isinstance(dasks, dict) else {}), names.METRIC: ours}
        ws.last_seen = time.time()


async def _nanny(made: Cluster, address: str, answer: Any) -> None:
    accounts = made.meter.accounts

    async def ask_directly(address: str, op: str, **asked: Any) -> Any:
        return answer

    accounts._workers.ask_directly = ask_directly
    if (presence := accounts.cluster.present.get(address)) is not None:
        await accounts._ask_nanny(presence.loss, "tcp://n", 7, after=100.0)
        accounts.events(names.FINAL_SNAPSHOT, answer)


async def _client(made: Cluster, client: Any, keys: Any) -> None:
    made.plugin.update_graph(made.scheduler, client=client, tasks=[], keys=keys, stimulus_id="update-graph-1.5")
    made.plugin.remove_client(made.scheduler, client)


_MESSAGES = {
    "question": _question,
    "event": _event,
    "reply": _reply,
    "registration": _registration,
    "heartbeat": _heartbeat,
    "nanny": _nanny,
    "client": _client,
}


def _sent(message: Any) -> Any:
    """As it arrives, if it can be sent."""
    try:
        return through_msgpack(message)
    except (OverflowError, TypeError, ValueError):
        return message
