from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.simulation.model.units import (
    few_names,
    parse_bandwidth,
    parse_nbytes,
    parse_seconds,
    shown_bandwidth,
    shown_seconds,
)

BANDWIDTHS = {"1 Gbit": 125e6, "1Gbps": 125e6, "100 Mbit/s": 12.5e6, "125 MB/s": 125e6, "1 GiB/s": 2.0**30}
BANDWIDTHS |= {"2.5e3 kbit": 312_500.0, "800 bit/s": 100.0}
TIMES = {"50us": 5e-5, "0.1 ms": 1e-4, "50 µs": 5e-5, "0 s": 0.0}
SIZES = {"16 GB": 16 * 10**9, "16GiB": 2**34, "512": 512, "1.5 kB": 1500}
READ = {parse_bandwidth: BANDWIDTHS, parse_seconds: TIMES, parse_nbytes: SIZES}


@pytest.mark.parametrize(("parse", "text"), [(parse, text) for parse, texts in READ.items() for text in texts])
def test_a_quantity_is_read_in_its_units(parse: Callable[[str], float], text: str) -> None:
    assert parse(text) == pytest.approx(READ[parse][text])


BANDWIDTH, TIME, SIZE = r"a bandwidth above 0.*'1 Gbit'", r"a time.*'50 us'", r"a size.*'16 GB'"


@pytest.mark.parametrize(
    ("parse", "expected", "text"),
    [
        *((parse_bandwidth, BANDWIDTH, text) for text in ("10 Gbps/s", "-1 Gbit", "0 Gbit", "1", "Gbit", "1 GB")),
        *((parse_bandwidth, BANDWIDTH, text) for text in ("nan Gbit", "1e999 bit", "")),
        *((parse_seconds, TIME, text) for text in ("50", "-1 ms", "1 m", "fast")),
        *((parse_nbytes, SIZE, text) for text in ("16 Gbit", "-1 GB", "much")),
    ],
)
def test_a_wrong_figure_is_refused_with_an_example(parse: Callable[[str], float], expected: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"expected {expected}") as caught:
        parse(text)
    assert repr(text) in str(caught.value)


@given(st.floats(1.0, 1e12), st.floats(1e-9, 1e3))
def test_shown_bandwidths_and_latencies_can_be_read(bandwidth: float, seconds: float) -> None:
    assert parse_bandwidth(shown_bandwidth(bandwidth)) == pytest.approx(bandwidth, rel=1e-3)
    assert parse_seconds(shown_seconds(seconds)) == pytest.approx(seconds, rel=1e-3)


def test_a_few_names_are_listed_and_the_rest_is_counted() -> None:
    assert few_names([]) == ""
    assert few_names([*"abcde"]) == "a, b, c, d, e"
    assert few_names([*"abcdefg"]) == "a, b, c, d, e and 2 more"
    assert few_names([*"abcdefg"], "prefixes") == "a, b, c, d, e and 2 more prefixes"
