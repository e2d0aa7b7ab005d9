import pytest

from dask_efficiency.accounts.buckets import GOOD, Bucket
from dask_efficiency.accounts.causes import CAUSES
from dask_efficiency.show.colours import CAUSE_COLOURS, COLOURS, GPU_COLOURS, LETTERS, OTHER_COLOUR, ink, luminance


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


@pytest.mark.parametrize("bucket", GOOD)
def test_good_time_is_green_or_blue(bucket: Bucket) -> None:
    red, green, blue = channels(COLOURS[bucket])
    assert red < max(green, blue)


@pytest.mark.parametrize("bucket", [Bucket.IDLE, Bucket.NO_WORK, Bucket.UNMEASURED])
def test_nobodys_time_is_grey(bucket: Bucket) -> None:
    assert max(channels(COLOURS[bucket])) - min(channels(COLOURS[bucket])) < 10


@pytest.mark.parametrize("bucket", Bucket)
def test_every_colour_stands_out_from_white_and_from_a_dark_page(bucket: Bucket) -> None:
    light = luminance(COLOURS[bucket]) + 0.05
    assert 1.05 / light > 1.3
    assert light / (luminance("#111418") + 0.05) > 1.8


def test_luminance_of_black_and_white() -> None:
    assert luminance("#000000") == 0.0
    assert luminance("#ffffff") == pytest.approx(1.0)


@pytest.mark.parametrize("bucket", Bucket)
def test_the_ink_on_a_colour_can_be_read(bucket: Bucket) -> None:
    one, other = sorted((luminance(COLOURS[bucket]), luminance(ink(COLOURS[bucket]))))
    # 4.5 is what WCAG asks of text
    assert (other + 0.05) / (one + 0.05) >= 4.5


def linear(colour: str) -> list[float]:
    shares = [channel / 255 for channel in channels(colour)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]


def times(matrix: list[list[float]], vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


#: Machado, Oliveira & Fernandes, IEEE TVCG 2009, severity 1.0, on linear RGB.
SIGHTS: dict[str, list[list[float]]] = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
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


@pytest.mark.parametrize("sight", SIGHTS)
def test_any_two_buckets_can_be_told_apart(sight: str) -> None:
    seen = {}
    for bucket, colour in (COLOURS | {"copies": GPU_COLOURS["copies"]}).items():
        light = [min(max(channel, 0.0), 1.0) for channel in times(SIGHTS[sight], linear(colour))]
        seen[bucket] = times(OKLAB, [cone ** (1 / 3) for cone in times(CONES, light)])
    # in Oklab 0.02 is about the smallest difference that is noticed side by side
    for one in seen:
        for other in seen:
            distance = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
            assert one is other or distance > 0.05, (one, other)
