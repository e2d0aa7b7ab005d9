import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.show.figures import (
    LABEL_LENGTH,
    MAX_KERNEL_NAME,
    apportion,
    format_bytes,
    format_number,
    format_seconds,
    format_share,
    format_thread_time,
    harmless,
    kernel_name,
    label,
    labelled,
    lower_first,
    money_scale,
    name_of,
    natural,
    shorten,
    time_scale,
    upper_first,
    workers_named,
)
from tests.report.samples import HOSTILE_NAMES


@given(st.lists(st.integers(0, 10**18), min_size=1, max_size=20), st.integers(0, 10**6))
def test_apportioned_numbers_add_up_and_none_is_a_whole_step_off(weights: list[int], whole: int) -> None:
    parts, total = apportion(weights, whole), sum(weights)
    assert sum(parts) == (whole if total else 0)
    off = [abs(part * total - weight * whole) for part, weight in zip(parts, weights, strict=True)]
    assert max(off) < total or not total


def test_the_largest_remainders_are_rounded_up() -> None:
    # 10 * (47, 16, 15.8, 12, 6.1, 3.1) / 100 = 4.7, 1.6, 1.58, 1.2, 0.61, 0.31
    assert apportion([470, 160, 158, 120, 61, 31], 10) == [5, 2, 1, 1, 1, 0]


NAN, INF = math.nan, math.inf
FORMATTED: list[tuple[Any, tuple[float, ...], tuple[str, ...]]] = [
    (
        format_seconds,
        (0.0, 1e-9, 0.0042, 0.9996, 119.4, 150.0, 7200.0, 1e7, NAN),
        ("0 s", "<0.1 ms", "4.2 ms", "1.0 s", "119 s", "2.5 min", "2.0 h", "2778 h", "unknown"),
    ),
    (
        format_bytes,
        (0, 1023, 1024, 350 * 1024, 1023.9 * 1024, 1.25 * 2**20, 3e20, NAN, INF),
        ("0 B", "1023 B", "1.0 kiB", "350 kiB", "1.0 MiB", "1.2 MiB", "266454 PiB", "unknown", "unknown"),
    ),
    (format_thread_time, (14_240_000_000, 350_000_000), ("14.2 thread-seconds", "350 thread-milliseconds")),
    (format_share, (0.0, 1e-6, 0.034, 0.9999, 1.0, NAN), ("0 %", "<0.1 %", "3.4 %", "99.9 %", "100 %", "-")),
]


@pytest.mark.parametrize(("form", "numbers", "texts"), FORMATTED)
def test_a_number_is_written_in_the_unit_that_fits_it(form, numbers, texts) -> None:
    assert tuple(map(form, numbers)) == texts


@pytest.mark.parametrize(
    ("largest", "unit", "text"),
    [(0.02, "ms", "20.0"), (22.9, "s", "22.9"), (600.0, "min", "10.0"), (36_000.0, "h", "10.0")],
)
def test_a_column_of_times_has_one_unit_that_fits_its_largest(largest: float, unit: str, text: str) -> None:
    scale = time_scale(largest)
    assert (scale.unit, scale.text(scale.steps(largest))) == (unit, text)


def test_small_prices_get_more_decimals() -> None:
    assert [money_scale(money).decimals for money in (0.0, 12.0, 0.5, 0.0012)] == [2, 2, 3, 5]


@pytest.mark.parametrize(
    ("sentence", "within", "alone"),
    [
        ("Tasks are small", "tasks are small", "Tasks are small"),
        ("GPU idle", "GPU idle", "GPU idle"),
        ("of workers", "of workers", "Of workers"),
        ("A", "a", "A"),
        ("", "", ""),
    ],
)
def test_the_first_letter_is_small_after_other_words_unless_the_word_is_in_capitals(
    sentence: str, within: str, alone: str
) -> None:
    assert (lower_first(sentence), upper_first(sentence)) == (within, alone)


def test_a_harmless_name_has_visible_characters_for_all_that_were_there() -> None:
    assert all(harmless(name).isprintable() for name in HOSTILE_NAMES)
    assert harmless("a\x1b[31m\n\u202e") == r"a\x1b[31m\n\u202e"
    assert harmless("größe-數據") == "größe-數據"


@given(st.text(), st.integers(1, 50))
def test_a_shortened_name_is_never_longer_than_asked(text: str, length: int) -> None:
    assert len(shorten(text, length)) <= length
    assert len(text) > length or shorten(text, length) == text
    assert shorten("read-parquet-0123456789abcdef", 16) == "read-parq...cdef"


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("batch_of__parallel_build_trees_1_calls", "joblib: parallel_build_trees"),
        ("batch_of_fit_and_score_12_calls", "joblib: fit_and_score"),
        ("batch_of_things", "batch_of_things"),
    ],
)
def test_a_batch_of_joblibs_has_the_name_of_its_function(prefix: str, name: str) -> None:
    assert name_of(prefix) == name


def test_names_that_look_the_same_have_labels_of_their_own_and_the_rest_is_one() -> None:
    long = "x" * 99
    assert labelled([long, long + "y", "", "a", "b"], "prefix", "prefixes", 3) == {
        name_of(long): [long],
        name_of(long + "y"): [long + "y"],
        "(no prefix)": [""],
        "2 more prefixes": ["a", "b"],
    }
    assert list(labelled(["\x07", r"\x07", "a"], "span", "spans", 2)) == [r"\x07", r"\x07 (2)", "1 more span"]


def test_names_of_any_length_sort_by_the_numbers_in_them():
    assert sorted(["w10", "w9", "a", "10", "9", "w"], key=natural) == ["a", "w", "w9", "w10", "9", "10"]
    assert natural("w" + "9" * 10_000) > natural("w8")


@given(st.text(max_size=100))
def test_any_name_can_be_shown(name: str) -> None:
    shown = label(name)
    assert len(shown) <= 2 * LABEL_LENGTH
    assert shown == "" or shown.isprintable() or "\u2060" in shown


@pytest.mark.parametrize("name", [r"$$\alpha$$", r"\(x\)", r"\[x\]"])
def test_a_name_is_no_formula(name: str) -> None:
    shown = label(name)
    assert shown.replace("\u2060", "") == name
    assert not any(delimiter in shown for delimiter in ("$$", r"\(", r"\["))


@pytest.mark.parametrize(
    ("whole", "short"),
    [
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        (
            "void at::native::vectorized_kernel<4, at::native::Add<float>, at::Array<char*, 3> >(int, float*)",
            "vectorized_kernel<4, Add<float>, Array<char*, 3>>",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, 8, false>(float*, float const*, int)",
            "softmax_warp_forward<float, float, 8, false>",
        ),
        (
            "void at::unrolled<at::f(at::It&)::{lambda(float)#1}>(at::f(at::It&)::{lambda(float)#1}, int)",
            "unrolled<f(It&)::{lambda(float)#1}>",
        ),
        ("fill(int*)", "fill"),
        ("(weird)", "(weird)"),
        ("", ""),
    ],
)
def test_a_kernel_has_the_name_that_a_person_knows(whole: str, short: str) -> None:
    assert kernel_name(whole) == short


@given(st.text("ab:<>(), &{}", max_size=60))
def test_any_kernel_has_a_short_name_that_is_no_longer(name: str) -> None:
    assert len(kernel_name(name)) <= len(name)
    assert bool(kernel_name(name)) is bool(name.strip())


def test_an_endless_kernel_name_is_cut_before_it_is_read() -> None:
    assert len(kernel_name("a::<(" * 10**6)) <= MAX_KERNEL_NAME


def test_a_number_has_no_exponent() -> None:
    numbers = {3.14159: "3.14", 12.0: "12", 999.4: "999", 999.6: "1000", 3712.2: "3712", 4e6: "4000000"}
    assert {number: format_number(number) for number in numbers} == numbers
    assert [format_number(number, digits=2) for number in (2.345, 99.4, 99.6, 3712.2)] == ["2.3", "99", "100", "3712"]


def test_workers_that_are_called_by_numbers_are_told_from_other_things() -> None:
    assert [workers_named(names) for names in (["0"], ["0", "1"], ["gpu-worker-3"])] == [
        "worker 0",
        "workers 0, 1",
        "gpu-worker-3",
    ]
