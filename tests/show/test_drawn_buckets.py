import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import CAUSES, GOOD, Breakdown, Bucket
from dask_efficiency.show.drawn_buckets import (
    CAUSE_COLOURS,
    COLOURS,
    GPU_COLOURS,
    LETTERS,
    OTHER,
    OTHER_COLOUR,
    finalized_parts,
    ink,
    label_point,
    luminance,
    percent_of,
    point,
    radians,
    svg_path,
    wedges,
)
from tests.report.samples import breakdowns as sample_breakdowns
from tests.strategies import breakdowns


def test_every_bucket_has_a_colour_and_a_letter_of_its_own() -> None:
    assert set(COLOURS) == set(LETTERS) == set(Bucket)
    assert len({*COLOURS.values(), OTHER_COLOUR}) == len(Bucket) + 1
    assert len(set(LETTERS.values())) == len(Bucket)
    assert all(len(letter) == 1 and letter.isascii() for letter in LETTERS.values())


def test_every_cause_has_a_colour_of_its_own_within_its_bucket() -> None:
    assert {bucket: tuple(colours) for bucket, colours in CAUSE_COLOURS.items()} == CAUSES
    assert all(len(set(colours.values())) == len(colours) for colours in CAUSE_COLOURS.values())
    # So that any two can be told apart, as buckets can.
    assert all(set(colours.values()) <= set(COLOURS.values()) for colours in CAUSE_COLOURS.values())


def channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:], 16)


def test_good_time_is_green_or_blue_and_time_of_no_task_is_grey() -> None:
    for bucket in GOOD:
        red, green, blue = channels(COLOURS[bucket])
        assert red < max(green, blue)
    for bucket in (Bucket.IDLE, Bucket.NO_WORK, Bucket.UNMEASURED):
        assert max(channels(COLOURS[bucket])) - min(channels(COLOURS[bucket])) < 10


@pytest.mark.parametrize("bucket", Bucket)
def test_a_colour_stands_out_from_white_and_from_a_dark_page_and_its_ink_can_be_read(bucket: Bucket) -> None:
    assert (luminance("#000000"), luminance("#ffffff")) == (0, pytest.approx(1))
    light = luminance(COLOURS[bucket]) + 0.05
    assert 1.05 / light > 1.3
    assert light / (luminance("#111418") + 0.05) > 1.8
    inked = luminance(ink(COLOURS[bucket])) + 0.05
    # 4.5 is what WCAG asks of text
    assert max(light, inked) / min(light, inked) >= 4.5


#: Machado, Oliveira & Fernandes, IEEE TVCG 2009, severity 1.0, on linear RGB.
SIGHTS: dict[str, list[list[float]]] = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
#: Ottosson 2020, linear RGB to cone responses and their cube roots to Oklab.
CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
OKLAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def smallest_distance(colours: Iterable[str], sight: str) -> float:
    """Smallest distance of two colours in Oklab; about 0.02 is noticed side by side."""
    shares = np.array([channels(colour) for colour in colours]) / 255
    light = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    seen = np.clip(light @ np.array(SIGHTS[sight]).T, 0, 1)
    lab = np.cbrt(seen @ np.array(CONES).T) @ np.array(OKLAB).T
    distances = np.linalg.norm(lab[:, None] - lab[None], axis=-1) + np.eye(len(lab))
    return float(distances.min())


@pytest.mark.parametrize("sight", SIGHTS)
def test_any_two_buckets_look_different(sight: str) -> None:
    assert smallest_distance((*COLOURS.values(), GPU_COLOURS["copies"]), sight) > 0.05


@given(breakdowns())
def test_the_parts_make_100_percent_and_none_is_shown_as_nothing(breakdown: Breakdown) -> None:
    parts = finalized_parts(breakdown)
    assert sum(part.tenths_of_percent for part in parts) == (1000 if parts else 0)
    small = finalized_parts(Breakdown({"thread-cpu": 100_000 * 10**9, "idle": 10**9}))
    assert [percent_of(part) for part in small] == ["100.0", "<0.1"]


def test_wedges_are_sorted_and_the_rest_is_folded_into_other() -> None:
    nanoseconds = {"thread-cpu": 500, "spill": 200, "idle": 150, "failed": 100, "paused": 30, "gpu": 20}
    pie = wedges(nanoseconds, at_most=4)
    assert [(wedge.label, wedge.percent, wedge.start) for wedge in pie] == [
        *(("thread-cpu", "50.0", 0.0), ("spill", "20.0", 0.5)),
        *(("idle", "15.0", 0.7), (OTHER, "15.0", 0.85)),
    ]


@given(sample_breakdowns, st.integers(1, 17))
def test_a_pie_is_whole_and_its_percentages_make_100(breakdown: Breakdown, at_most: int) -> None:
    pie = wedges(breakdown.to_nanoseconds(), at_most=at_most)
    assert len(pie) == min(len(breakdown), at_most)
    if pie:
        assert pie[0].start == 0.0
        assert pie[-1].stop == 1.0
        assert sum(wedge.nanoseconds for wedge in pie) == breakdown.total_ns
        assert sum(round(10 * float(wedge.percent)) for wedge in pie) == 1000
        assert all(one.stop == other.start for one, other in pairwise(pie))


def test_seventeen_buckets_make_seven_wedges_and_nothing_none() -> None:
    assert len(wedges({str(bucket): 1 for bucket in Bucket})) == 7
    assert wedges({}) == wedges({"idle": 0}) == ()


def test_a_pie_begins_at_twelve_and_goes_clockwise() -> None:
    assert point(0.0, 1.0) == pytest.approx((0, -1))
    assert point(0.25, 1.0) == pytest.approx((1, 0))
    assert radians(0.0) == math.pi / 2
    assert radians(0.25) == pytest.approx(0.0)


def test_a_quarter_and_the_rest_have_the_outlines_worked_out_by_hand() -> None:
    rest, quarter = wedges({"thread-cpu": 3, "idle": 1})
    assert svg_path(rest, 10) == "M0 0L0 -10A10 10 0 1 1 -10 0Z"
    assert svg_path(quarter, 10) == "M0 0L-10 0A10 10 0 0 1 0 -10Z"
    assert label_point(quarter, 10) == pytest.approx((-10 / math.sqrt(2), -10 / math.sqrt(2)))


def test_a_single_wedge_is_a_circle_with_its_label_in_the_middle() -> None:
    (whole,) = wedges({"idle": 5})
    assert svg_path(whole, 10) == "M0 -10A10 10 0 0 1 0 10A10 10 0 0 1 0 -10Z"
    assert label_point(whole, 10) == (0.0, 0.0)
