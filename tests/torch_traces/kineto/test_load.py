"""Which files are the ranks of one job."""

import gzip
import io
import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError, RanksError, UnknownRankError
from dask_efficiency.torch_traces.kineto.load import load_kineto, read_rank, read_ranks
from dask_efficiency.torch_traces.kineto.trace import Category, KinetoTrace, RankTrace
from tests.torch_traces.kineto.rows import check, expected

TESTS = Path(__file__).parents[2]
FILES = [*sorted((TESTS / "data" / "kineto").glob("*.gz")), *sorted((TESTS / "gpu" / "data").glob("*.gz"))]
SMALL_BLOCK = 4096


def read(text: str | bytes, **options: Any) -> RankTrace:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return read_rank(io.BytesIO(data), "rank.json", **options)


def events_of(*events: dict[str, Any], **beside: Any) -> str:
    return json.dumps({**beside, "traceEvents": events})


def event(**changed: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 10, "dur": 5} | changed


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_columns_are_equal_to_the_json(path: Path) -> None:
    text = gzip.decompress(path.read_bytes())
    with path.open("rb") as file:
        check(read_rank(file, str(path)), text)
    check(read(text, block=SMALL_BLOCK), text)


def recorded(name: str) -> RankTrace:
    with (TESTS / "data" / "kineto" / f"{name}.json.gz").open("rb") as file:
        return read_rank(file, name)


def test_rank_job_and_process_groups_are_read_from_the_file() -> None:
    trace = recorded("cpu_only")
    assert (trace.rank, trace.world_size, trace.about["username"]) == (34, 300, "mojif")
    assert trace.groups["0"] == tuple(range(300))
    assert "traceEvents" not in trace.about


def test_threads_and_streams_have_the_names_that_the_file_gives_them() -> None:
    threads = recorded("event_sync").threads
    assert threads[0, 7] == "stream 7 "
    assert any(name.startswith("thread 948300") for name in threads.values())


def test_a_group_is_also_known_from_its_collectives() -> None:
    arguments = {"Collective name": "allreduce", "Process Group Name": "7", "Process Group Ranks": "[0, 2, 4]"}
    cut = arguments | {"Process Group Name": "8", "Process Group Ranks": "[0, 1, ..., 99]"}
    assert read(events_of(event(args=arguments), event(args=cut))).groups == {"7": (0, 2, 4)}


@pytest.mark.parametrize(
    ("ts", "start"),
    [
        ("1695835542513910.123", 1_695_835_542_513_910_123),
        ("1695835542513910", 1_695_835_542_513_910_000),
        ('"1695835542513910.1"', 1_695_835_542_513_910_100),
        ("16e14", 1_600_000_000_000_000_000),
        ("-0.001", -1),
        ("0.0005", 0),
        ('"0.0015"', 2),
        ('"1e2"', 100_000),
    ],
)
def test_no_digit_of_an_instant_is_lost(ts: str, start: int) -> None:
    text = events_of(event(ts="AT")).replace('"AT"', ts)
    assert read(text).events.start.tolist() == [start]
    assert read(text[:-1] + ', "baseTimeNanoseconds": 7}').events.stop.tolist() == [start + 7 + 5_000]


NO_NUMBERS = (None, float("nan"))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        *((event(ts=ts), "no start") for ts in (*NO_NUMBERS, "soon", 1 << 60)),
        *((event(dur=dur), "no duration") for dur in (*NO_NUMBERS, float("inf"))),
        *((event(dur=dur), "negative duration") for dur in (-1, -0.001)),
        *((value, "not an object") for value in (1, None, [])),
    ],
)
def test_values_that_are_no_events_with_a_place_in_time_are_left_out_and_counted(bad: Any, reason: str) -> None:
    trace = read(events_of(event(), bad, event(ts=20)))
    assert trace.events.index.tolist() == [0, 2]
    assert trace.left_out == {reason: 1}


@pytest.mark.parametrize("category", [None, 3, [], {"a": 1}])
def test_a_category_that_is_no_text_is_not_known(category: Any) -> None:
    trace = read(events_of(event(cat=category), event()))
    assert trace.events.category.tolist() == [Category.UNKNOWN, Category.OPERATOR]
    (note,) = trace.notes
    assert note.startswith(f"1 event of kinds that are not known here ({category or 'no category'}): what a device did")


def public(name: str) -> KinetoTrace:
    return load_kineto(TESTS / "data" / "kineto" / "public" / f"{name}.json")


def test_a_number_that_is_inf_is_left_out_and_its_event_stays() -> None:
    (trace,) = public("14-inf").ranks
    assert len(trace.events) == 3
    assert trace.events.nbytes.tolist() == [MISSING, MISSING, 200]
    assert trace.left_out == {"numbers that are inf or nan": 1}


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "-NaN", "Infinity", "NaN"])
@pytest.mark.parametrize("block", [1, 7, SMALL_BLOCK])
def test_numbers_that_are_none_end_no_trace(number: str, block: int) -> None:
    text = events_of(event(args={"bytes": "BYTES"}), event(ts="TIME"), event(ts=20))
    trace = read(text.replace('"BYTES"', number).replace('"TIME"', f" {number} "), block=block)
    assert trace.events.index.tolist() == [0, 2]
    assert trace.left_out["no start"] == 1
    with pytest.raises(KinetoFileError, match="expecting value"):
        read(text.replace('"BYTES"', "infer"), block=block)


def test_work_at_the_instant_zero_is_left_out_and_counted() -> None:
    (trace,) = public("12-kernels-at-instant-zero").ranks
    assert trace.left_out == {"work on a GPU hours away from the calls": 4}
    assert trace.events.stop.max() - trace.events.start.min() == 3_000_000


def test_events_of_categories_that_are_not_known_are_counted_and_what_is_not_shown_is_said() -> None:
    assert public("08-ascend-trace-view").ranks[0].notes == (
        (
            "10 events of kinds that are not known here (no category, in Ascend Hardware): what a device did then is "
            "not shown, nor which call waited for it. Operators, Python and named ranges of the CPU are; what a thread "
            "did during such an event is unattributed."
        ),
    )
    named = [event(cat=f"mtia_{number}") for number in range(6)]
    (note,) = read(events_of(event(), *named, *named[:1])).notes
    assert note.startswith("7 events of kinds that are not known here (mtia_0, mtia_1, mtia_2, mtia_3, ...): what")
    assert read(events_of(event(), event(cat="Trace"), event(cat="overhead"))).notes == ()
    process = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "\x1b[31m\n" + "<" * 999}}
    (note,) = read(events_of(event(cat="\x1b[0m\n" + "a" * 999), process)).notes
    assert note.isprintable()
    assert len(note) < 500


def test_ranks_that_were_merged_into_one_file_are_as_many_ranks() -> None:
    merged = public("10-ranks-merged-in-one-file")
    apart = [public(f"10-rank{rank}").ranks[0] for rank in range(2)]
    assert merged.numbers == tuple(rank.rank for rank in apart) == (0, 1)
    for one, other in zip(merged.ranks, apart, strict=True):
        assert one.world_size == other.world_size == 2
        for name, column in one.events.columns().items():
            if name == "name":
                assert [one.names[name] for name in column] == [other.names[name] for name in other.events.name]
            elif name != "index":
                assert column.tolist() == other.events.columns()[name].tolist(), name


def test_events_of_no_rank_in_a_file_of_several_are_counted() -> None:
    ranks = [event(pid=f"rank {rank}: {7000 + rank}") for rank in (1, 0)]
    names = [
        {"ph": "M", "name": "thread_name", "pid": each["pid"], "tid": 2, "args": {"name": "main"}} for each in ranks
    ]
    found = read_ranks(io.BytesIO(events_of(*ranks, *names, event(pid="Spans")).encode()), "job.json")
    assert [(rank.rank, rank.events.process.tolist(), rank.threads) for rank in found] == [
        (0, [7000], {(7000, 2): "main"}),
        (1, [7001], {(7001, 2): "main"}),
    ]
    assert found[0].left_out == {"no rank, in a file of several": 1}


def test_the_list_of_events_alone_is_a_trace() -> None:
    trace = read(json.dumps([event(), event(ts=11)]))
    assert trace.events.start.tolist() == [10_000, 11_000]
    assert (trace.rank, trace.world_size, trace.about) == (0, None, {})


@pytest.mark.parametrize("text", ["[]", '{"traceEvents": []}', '\ufeff {"a": 1, "traceEvents": [ ] } \n'])
def test_a_trace_without_events_is_one(text: str) -> None:
    assert len(read(text).events) == 0


def test_several_gzip_members_and_their_padding_are_one_text() -> None:
    text = events_of(event(), event(ts=11)).encode()
    parts = gzip.compress(text[:40]) + gzip.compress(b"") + gzip.compress(text[40:])
    for padding in (b"", b"\0" * 512):
        assert len(read(parts + padding, block=7).events) == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty, at character 0"),
        (b"  \n", "the file is empty, at character 3"),
        (b"\x7fELF\x00\xff\xfe", "no JSON, at character 0"),
        (b"true", "no JSON, at character 0"),
        (b"{}", "there is no traceEvents in it"),
        (b'{"schemaVersion": 1}', "there is no traceEvents in it, at character 20"),
        (b'{"traceEvents": {}}', "[ is expected, at character 16"),
        (b'{"traceEvents": [{"ph": "X", 5}]}', "at character 29"),
        (b'{"traceEvents": [{"ph": "X"} {"ph": "X"}]}', ", or ] is expected, at character 29"),
        (b'{"traceEvents": [], }', "a name in double quotes is expected, at character 20"),
        (b'{"traceEvents": [{}', "ends early"),
        (b'{"traceEvents": [{}], "baseTimeNanoseconds": 12', "ends early: , or } is expected, at character 47"),
        (b'{"traceEvents": [{"name": "aten::m', "ends early"),
        (b'{"traceEvents": []} []', "more after the end of the JSON, at character 20"),
        (b'{"a": ' + b"[" * 200_000, "a value cannot be read"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a value cannot be read"),
        (b'{"traceEvents": [], "baseTimeNanoseconds": -5}', "baseTimeNanoseconds is -5"),
    ],
)
@pytest.mark.parametrize("block", [1, 1 << 18])
def test_other_files_than_traces_are_refused_with_the_file_and_the_place(data: bytes, message: str, block: int) -> None:
    with pytest.raises(KinetoFileError, match="^rank.json: ") as raised:
        read(data, block=block)
    assert message in str(raised.value)


@pytest.mark.parametrize("block", [1, 1 << 18])
def test_an_execution_trace_is_named_as_such(block: int) -> None:
    with pytest.raises(KinetoFileError, match="^rank.json is an execution trace of PyTorch or Chakra: "):
        read(b'{"nodes": []}', block=block)


@pytest.mark.parametrize("block", [100, 1 << 18])
def test_gzip_that_ends_early_or_is_damaged_is_refused_with_its_length(block: int) -> None:
    text = events_of(*(event(ts=number) for number in range(1000))).encode()
    data = bytearray(gzip.compress(text))
    for kept in (2, 18, len(data) // 2, len(data) - 1):
        with pytest.raises(KinetoFileError, match=f"rank.json: the compressed file ends early, after {kept} bytes"):
            read(bytes(data[:kept]), block=block)
    with pytest.raises(KinetoFileError, match=f"they hold the first {len(text)} of its content"):
        read(bytes(data[:-4]), block=block)
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(KinetoFileError, match=r"rank.json: (the compressed file|.* at character)"):
        read(bytes(data), block=block)


def test_an_error_far_behind_the_first_block_has_its_place() -> None:
    text = events_of(*(event(ts=number) for number in range(500)))
    at = text.index('"ts": 400')
    with pytest.raises(KinetoFileError, match=f"at character {at}$"):
        read(text[:at] + "?" + text[at + 1 :], block=64)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text('a\\"}{],[: é\n', max_size=8),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text("a}{", max_size=2), inside, max_size=3),
    max_leaves=5,
)
numbers = st.integers(-2, 70) | st.sampled_from([1 << 31, 1 << 63, "12", 3.0, 0.5])
times = (
    st.integers(-5, 1 << 53)
    | st.decimals(-5, 1 << 51, places=3).map(float)
    | st.decimals(0, 1 << 51, places=3).map(str)
    | st.sampled_from([float("nan"), None, "x", 1e400, 1e-9])
)
CATEGORIES = ["cpu_op", "Operator", "user_annotation", "cuda_runtime", "Runtime", "cuda_driver", "kernel", "Memcpy"]
CATEGORIES += ["gpu_memset", "cuda_sync", "gpu_user_annotation", "python_function", "Trace", None]
ARGUMENTS = ["correlation", "External id", "external id", "cbid", "device", "stream", "bytes", "Sequence number"]
ARGUMENTS += ["wait_on_stream", "wait_on_cuda_event_record_corr_id", "Group size", "In msg nelems"]
lanes = st.integers(-1, 9) | st.integers(0, 1 << 64) | st.sampled_from(["stream 7", "12", "Spans", "Traces", None, []])
events = st.fixed_dictionaries(
    {"ph": st.sampled_from("XXXXXMsf"), "cat": st.sampled_from(CATEGORIES), "ts": times, "dur": times},
    optional={
        "name": st.sampled_from(["aten::mm", "}, {", 'a"b', "thread_name"]),
        "pid": lanes,
        "tid": lanes,
        "args": st.dictionaries(st.sampled_from(ARGUMENTS), numbers)
        | st.fixed_dictionaries(
            {"Collective name": st.sampled_from(["allreduce", 5])},
            optional={"Process Group Name": st.sampled_from(["0", 0]), "dtype": st.just("Float"), "name": anything},
        )
        | anything,
        "else": anything,
    },
)
traces = st.fixed_dictionaries(
    {"before": anything, "traceEvents": st.lists(events | anything, max_size=12), "after": anything},
    optional={"baseTimeNanoseconds": st.integers(0, 1 << 61), "distributedInfo": anything},
)


def check_all(ranks: Sequence[RankTrace], text: str) -> None:
    """Check the columns of one rank, or that no event is lost of the ranks of different processes."""
    if len(ranks) == 1:
        check(ranks[0], text)
        return
    rank_not_known = (number for reason, number in ranks[0].left_out.items() if "rank" in reason)
    says_nothing = sum(row["cat"] in ("trace", "none") for row in expected(text))
    seen = sum(len(rank.events) for rank in ranks) + sum(rank_not_known)
    assert len(expected(text)) - says_nothing <= seen <= len(expected(text))


@settings(max_examples=150, deadline=None)
@given(
    trace=traces | st.lists(events, max_size=8),
    indent=st.sampled_from([None, 1]),
    separators=st.sampled_from([None, (",", ":")]),
    ascii_only=st.booleans(),
    block=st.integers(1, 200) | st.integers(200, 3000),
    compressed=st.booleans(),
)
def test_columns_are_equal_to_the_json_wherever_blocks_end(
    trace: Any, indent: int | None, separators: Any, ascii_only: bool, block: int, compressed: bool
) -> None:
    text = json.dumps(trace, indent=indent, separators=separators, ensure_ascii=ascii_only)
    data = text.encode()
    seen, *others = read_ranks(io.BytesIO(gzip.compress(data) if compressed else data), "rank.json", block=block)
    check_all((seen, *others), text)
    if isinstance(trace, dict):
        whole = json.loads(text)
        whole.pop("traceEvents")
        assert repr(seen.about) == repr(whole)


@settings(max_examples=150, deadline=None)
@given(
    trace=st.fixed_dictionaries({"traceEvents": st.lists(events, min_size=1, max_size=4), "after": st.just({"a": 1})}),
    where=st.floats(0, 1),
    wrong=st.sampled_from(["", "?", "}", "]", "{", '"', ","]),
    block=st.integers(1, 100),
)
def test_text_that_is_no_json_is_refused_wherever_blocks_end(trace: Any, where: float, wrong: str, block: int) -> None:
    text = json.dumps(trace)
    at = int(where * (len(text) - 1))
    text = text[:at] + wrong + text[at + 1 :]
    try:
        is_trace = isinstance(json.loads(text), list) or "traceEvents" in json.loads(text)
    except ValueError:
        is_trace = False
    if is_trace:
        check_all(read_ranks(io.BytesIO(text.encode()), "rank.json", block=block), text)
        return
    with pytest.raises(KinetoFileError, match="at character"):
        read(text, block=block)


class Counted(io.BytesIO):
    asked = 0

    def read(self, size: int | None = -1) -> bytes:  # type: ignore[override]
        self.asked += size or 0
        return super().read(size)


def test_an_error_at_the_beginning_is_found_before_the_rest_is_read() -> None:
    file = Counted(b'{"traceEvents": [{"ph" "X"},' + b" " * (1 << 20))
    with pytest.raises(KinetoFileError, match="at character 23"):
        read_rank(file, "rank.json", block=1024)
    assert file.asked <= max(1 << 14, io.DEFAULT_BUFFER_SIZE)


def test_a_file_is_never_in_memory_as_a_whole() -> None:
    arguments = {"Call stack": "train.py(7): step;" * 60, "External id": 1}
    text = events_of(*(event(ts=number, args=arguments) for number in range(10_000)), after={"a": 1}).encode()
    file = io.BytesIO(gzip.compress(text, 1))
    tracemalloc.start()
    try:
        trace = read_rank(file, "rank.json.gz")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    columns = sum(column.nbytes for column in trace.events.columns().values())
    assert len(trace.events) == 10_000
    assert peak - 3 * columns < len(text) / 2


HOUR = 3600 * 1_000_000


def write(path: Path, rank: int | None, *, world_size: int | None = 3, ts: int = 0, backend: str = "nccl") -> Path:
    job = {"rank": rank, "world_size": world_size, "backend": backend}
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": ts, "dur": 5}
    text = json.dumps({"distributedInfo": {k: v for k, v in job.items() if v is not None}, "traceEvents": [event]})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for name, rank in (("a.json", 2), ("b.json.gz", 0), ("c.json", 1)):
        write(tmp_path / name, rank)
    (tmp_path / "notes.txt").write_text("not a trace")
    return tmp_path


def test_a_folder_has_its_ranks_in_order(job: Path) -> None:
    for path in (job, str(job), f"{job}/", job / "*.json*", f"file://{job}"):
        trace = load_kineto(path)
        assert trace.numbers == (0, 1, 2)
        assert (trace.world_size, trace.missing_ranks) == (3, ())
        assert trace.rank(2).path == str(job / "a.json")


def test_of_a_folder_of_the_profilers_own_only_its_files_are_read(job: Path) -> None:
    (job / "et.json").write_text("{}")
    for rank, end in enumerate(["json", "json.gz", "json"]):
        write(job / f"host_{rank}.17.pt.trace.{end}", rank)
    assert load_kineto(job).numbers == (0, 1, 2)


def test_a_file_alone_and_a_list_may_be_a_part_of_the_ranks(job: Path) -> None:
    assert load_kineto(job / "a.json").missing_ranks == (0, 1)
    some = load_kineto([job / "a.json", str(job / "b.json.gz")])
    assert (some.numbers, some.missing_ranks) == ((0, 2), (1,))
    with pytest.raises(UnknownRankError, match="no rank 1 in this trace; there is: 0, 2"):
        some.rank(1)


def test_a_file_in_another_place_is_read(job: Path) -> None:
    import fsspec

    elsewhere = fsspec.filesystem("memory")
    elsewhere.put(str(job), "/kineto", recursive=True)
    try:
        trace = load_kineto("memory://kineto")
    finally:
        elsewhere.rm("/kineto", recursive=True)
    assert trace.rank(0).path == "memory:///kineto/b.json.gz"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([(0, {}), (2, {})], r"of a job of 3 ranks, rank 1 is missing, and 2 ranks \(0, 2\) are there"),
        ([(1, {})], r"2 ranks \(0, 2\) are missing, and rank 1 is there"),
        ([(0, {}), (1, {}), (1, {})], "rank 1 is there 2 times: .*1.json, .*2.json$"),
        ([(0, {}), (None, {}), (1, {})], r"rank 0 is there 2 times: .* \(a file that does not say its rank is rank 0"),
        ([(0, {}), (1, {"world_size": 4})], "different jobs: .*0.json has world_size 3, .*1.json has 4"),
        ([(0, {}), (1, {"backend": "gloo"})], "different jobs: .*0.json has backend 'nccl', .*1.json has 'gloo'"),
        ([(0, {}), (5, {})], "1.json is of rank 5 in a job of 3"),
        ([(0, {}), (1, {"ts": 9 * HOUR}), (2, {})], "different runs: .*1.json begins 32400 s after the end"),
    ],
)
def test_ranks_that_do_not_make_one_job_are_named(
    tmp_path: Path, files: list[tuple[int | None, dict[str, Any]]], message: str
) -> None:
    paths = [write(tmp_path / f"{number}.json", rank, **changed) for number, (rank, changed) in enumerate(files)]
    with pytest.raises(RanksError, match=message):
        load_kineto(tmp_path)
    if "missing" not in message:
        with pytest.raises(RanksError, match=message):
            load_kineto(paths)


def test_a_job_of_unknown_size_misses_nothing(tmp_path: Path) -> None:
    for rank in (0, 4):
        write(tmp_path / f"{rank}.json", rank, world_size=None)
    trace = load_kineto(tmp_path)
    assert (trace.numbers, trace.world_size, trace.missing_ranks) == ((0, 4), None, ())


def test_a_place_without_a_trace_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "*.json"):
        with pytest.raises(KinetoFileError, match="there is no trace of Kineto's"):
            load_kineto(path)
    with pytest.raises(FileNotFoundError):
        load_kineto(tmp_path / "none.json")
    with pytest.raises(KinetoFileError, match="no files were given"):
        load_kineto([])


def test_the_file_that_is_damaged_is_named(job: Path) -> None:
    (job / "c.json").write_text('{"traceEvents": [}')
    with pytest.raises(KinetoFileError, match=r"c.json: expecting value, at character 17"):
        load_kineto(job)
