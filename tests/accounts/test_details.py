import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import MAX_NANOSECONDS, RefusedPayload
from dask_efficiency.accounts.details import (
    MAX_DEPTH,
    MAX_HOLDS,
    Holdup,
    MergedProfiles,
    SampleRow,
    WindowDetails,
    costliest,
    decode_details,
    encode_details,
)
from dask_efficiency.accounts.facts import FactsBuilder, decode_facts, encode_facts
from dask_efficiency.accounts.metered import Metered
from dask_efficiency.accounts.rows import MAX_ROWS, OTHER
from tests.strategies import metered, nanoseconds, window_details


def place(line: int, prefix: str = "inc") -> SampleRow:
    return SampleRow("thread-noncpu", "gil", prefix, (("main", "a.py", 1), ("f", "b.py", line)))


@given(window_details())
def test_details_survive_the_wire(details):
    assert decode_details(encode_details(details, limit=100)) == details


def test_each_frame_travels_once_and_a_deep_stack_loses_its_outermost_calls():
    sent = encode_details(WindowDetails(profile={place(i): i + 1 for i in range(50)}), limit=100)
    assert (len(sent["frames"]), len(sent["stacks"])) == (51, 50)
    deep = tuple(("f", "a.py", line) for line in range(2 * MAX_DEPTH))
    [row] = decode_details(encode_details(WindowDetails(profile={SampleRow("idle", "", "", deep): 1}), limit=1)).profile
    assert row.stack == deep[MAX_DEPTH:]


@given(st.dictionaries(st.integers(0, 20), nanoseconds, max_size=20), st.integers(0, 20))
def test_the_costliest_rows_of_a_long_profile_travel_and_the_rest_as_one_without_a_stack(lines, limit):
    rows = {place(line): ns for line, ns in lines.items()}
    kept = costliest(rows, limit)
    assert sum(kept.values()) == sum(rows.values())
    assert len([row for row in kept if row.stack]) <= max(limit, 0) or len(rows) <= limit
    if len(rows) > limit:
        lost = [ns for row, ns in rows.items() if row not in kept]
        assert all(ns >= max(lost, default=0) for row, ns in kept.items() if row.stack)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"frames": [["f", "a.py"]]}, "frame"),
        ({"frames": [["f", "a.py", -1]]}, "line"),
        ({"stacks": [[0]]}, "frames"),
        ({"profile": [["idle", "", "inc", 3, 1]]}, "stacks"),
        ({"profile": [["idle", "", "inc", True, 1]]}, "stacks"),
        ({"profile": [["idle", "", "inc"]]}, "expected 5 values"),
        ({"gil_holds": [[-1, "inc", 0]], "stacks": [[]]}, "gil_holds"),
        ({"holders": None}, "holders"),
        ({"skew": None}, "skew"),
        ({"skew": [["inc", [1], [0], [0], [0], None, None, None, None, 0]]}, "skew of 'inc'"),
    ],
    ids=repr,
)
def test_a_field_out_of_order_is_refused_by_name(change, words):
    with pytest.raises(RefusedPayload, match=words):
        decode_details({**encode_details(WindowDetails(), limit=1), **change})


@given(st.lists(st.tuples(window_details(), metered), max_size=4))
def test_profiles_of_several_workers_add_up(answers):
    merged = MergedProfiles()
    for i, answer in enumerate(answers):
        merged.add(f"w{i}", *answer)
    every = [details for details, _ in answers]
    assert sum(merged.profile.values()) == sum(sum(details.profile.values()) for details in every)
    assert sum(merged.holders.values()) == sum(sum(details.holders.values()) for details in every)
    assert len(merged.gil_holds) == min(MAX_HOLDS, sum(len(details.gil_holds) for details in every))
    tasks = sum(sizes.ns.count for details in every for sizes in details.skew.values())
    assert sum(sizes.ns.count for sizes in merged.skew.values()) == tasks
    assert sum(merged.metered.values()) == sum(sum(each.values()) for _, each in answers)


def test_the_longest_holds_of_all_workers_are_kept_with_their_workers():
    merged = MergedProfiles()
    merged.add("a", WindowDetails(gil_holds=tuple(Holdup(ns, "inc", ()) for ns in range(MAX_HOLDS))), {})
    merged.add("b", WindowDetails(gil_holds=(Holdup(1_000, "sum", ()),)), {})
    assert merged.gil_holds[0] == ("b", Holdup(1_000, "sum", ()))
    assert len(merged.gil_holds) == MAX_HOLDS


def test_beyond_a_bound_first_workers_and_then_labels_are_merged_and_sums_stay():
    merged = MergedProfiles()
    for worker in range(3):
        labels = {Metered("execute", "", "inc", f"label {i}", "count"): 1 for i in range(MAX_ROWS)}
        merged.add(f"w{worker}", WindowDetails(), labels)
    assert len(merged.metered) == 2 * MAX_ROWS
    assert merged.metered["w0", Metered("execute", "", "inc", "label 7", "count")] == 1
    assert merged.metered["", Metered("execute", "", "inc", "label 7", "count")] == 2
    merged.add("w3", WindowDetails(), {Metered("execute", "", "inc", "one more", "count"): 1})
    assert merged.metered["", Metered("execute", "", "", OTHER, "count")] == 1
    assert sum(merged.metered.values()) == 3 * MAX_ROWS + 1


def test_byte_seconds_keep_their_sum_and_unit_however_many_rows_and_bytes_there_are():
    merged = MergedProfiles()
    for worker in range(12):
        held = {Metered("memory", f"{worker}", f"p{i}", "held", "byte-seconds"): 1_000 for i in range(1_000)}
        merged.add(f"w{worker}", WindowDetails(), held)
    assert sum(merged.metered.values()) == 12_000_000
    assert merged.metered["", Metered("memory", "", "", "held", "byte-seconds")] == 2_000_000
    large, rows = MergedProfiles(), Metered("memory", "", "", "process", "byte-seconds")
    for _ in range(5):
        large.add("w", WindowDetails(), {rows: MAX_NANOSECONDS})
    assert large.metered == {("w", rows): 5 * MAX_NANOSECONDS}
    builder = FactsBuilder()
    builder.add(5 * MAX_NANOSECONDS, worker="w", label="process", unit="byte-seconds")
    assert decode_facts(encode_facts(builder.build())).sums("worker") == {("w",): 5 * MAX_NANOSECONDS}


def test_each_worker_keeps_its_own_memory_and_what_was_at_the_peaks_of_others_is_left_out():
    merged, peak = MergedProfiles(), Metered("memory", "", "", "process", "bytes")
    at_peak = [Metered("memory", "", f"p{i}", "held at peak", "bytes") for i in range(100)]
    for worker in range(1_000):
        merged.add(f"w{worker}", WindowDetails(), {**dict.fromkeys(at_peak, 5), peak: worker})
    assert [merged.metered[f"w{worker}", peak] for worker in range(1_000)] == [*range(1_000)]
    assert len(merged.metered) == MAX_ROWS + 1_000
    assert "" not in {worker for worker, _ in merged.metered}


def test_sums_of_many_workers_stay_as_large_as_may_travel():
    merged = MergedProfiles()
    rows = Metered("execute", "", "inc", "rows", "count")
    for _ in range(5):
        merged.add("alice", WindowDetails(), {rows: 1 << 61})
    assert merged.metered == {("alice", rows): MAX_NANOSECONDS}


def test_the_peak_of_a_worker_that_came_twice_is_the_higher_one():
    merged, peak = MergedProfiles(), Metered("memory", "", "", "process", "bytes")
    held, slope = (
        Metered("memory", "", "inc", "held", "byte-seconds"),
        Metered("memory", "", "", "growth", "bytes/hour"),
    )
    for level in (5, 7, 6):
        merged.add("w", WindowDetails(), {peak: level, held: 1, slope: -level})
    assert merged.metered == {("w", peak): 7, ("w", held): 3, ("w", slope): -5}


@pytest.mark.parametrize("peaks", [(7, 5), (5, 7), (7, 7)])
def test_a_worker_that_came_twice_has_the_results_of_its_higher_peak(peaks):
    merged, peak = MergedProfiles(), Metered("memory", "", "", "process", "bytes")
    for prefix, level in zip("ab", peaks, strict=True):
        at_peak = Metered("memory", "", prefix, "held at peak", "bytes")
        merged.add("other", WindowDetails(), {at_peak: 1})
        merged.add("w", WindowDetails(), {at_peak: level, peak: level})
    higher = "ab"[peaks[1] > peaks[0]]
    found = {one.prefix for worker, one in merged.metered if worker == "w" and one != peak}
    assert found == {higher}
    assert {one.prefix for worker, one in merged.metered if worker == "other"} == {"a", "b"}


def test_a_profile_of_many_places_is_bounded_and_keeps_its_sum():
    merged = MergedProfiles()
    for i in range(3):
        merged.add("a", WindowDetails(profile={place(line + i * MAX_ROWS): 1 for line in range(MAX_ROWS)}), {})
    assert len(merged.profile) <= 2 * MAX_ROWS + 1
    assert sum(merged.profile.values()) == 3 * MAX_ROWS
