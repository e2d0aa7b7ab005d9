from __future__ import annotations

from itertools import product

import dask
import pytest
from hypothesis import given as property_of

from dask_efficiency.plugin.options import OPTIONS, Options, given, resolve
from tests.strategies import plain_data


def test_every_option_has_a_default_that_can_be_read():
    options = resolve({})
    first = (None, None, 5.0, 5.0, 100, False, 1_000_000, "auto", True, "warn")
    assert options == Options(*first, False, 1200.0, True, 100, 50, False, True, {})
    assert OPTIONS.keys() == set(Options.__dataclass_fields__)


def test_an_argument_overrides_the_configuration_and_the_scheduler_sets_the_rest():
    assert given(dict.fromkeys(OPTIONS)) == {}
    with dask.config.set({"efficiency.report-timeout": "2s", "efficiency.max-prefixes": 7}):
        assert given({"report_timeout": "500ms", "max_prefixes": None}) == {"report_timeout": 0.5, "max_prefixes": 7}
        options = resolve({"report_timeout": 0.5})
    assert (options.report_timeout, options.max_prefixes) == (0.5, 7)


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("report_timeout", "250 ms", 0.25),
        ("report_timeout", 3, 3.0),
        ("report_timeout", "3", 3.0),
        ("history_interval", "1 minute", 60.0),
        ("price_per_worker_hour", "0.75", 0.75),
        ("price_per_worker_hour", 0, 0.0),
        ("max_prefixes", "12", 12),
        ("max_prefixes", 12.0, 12),
        ("trace", True, True),
        ("trace", "False", False),
        ("trace_max_tasks", "500", 500),
        ("gpu", "cupti", "cupti"),
        ("gpu", False, "off"),
        ("gpu", True, "auto"),
        ("save_to", "s3://bucket/report.json", "s3://bucket/report.json"),
    ],
)
def test_an_option_is_read_in_seconds_and_plain_numbers(name, value, read):
    assert given({name: value}) == {name: read}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *product(("report_timeout", "history_interval"), (0, -1, "", "soon", "5 parsecs", [], {})),
        *product(("report_timeout",), (float("nan"), float("inf"), "1e400s", 10**400, b"5s")),
        *product(("price_per_worker_hour",), (-1, float("nan"), float("inf"), "", "cheap", [], 10**400)),
        *product(("gpu",), (0, "", "cuda", [])),
        *product(("trace",), (0, 1, "", "maybe", [])),
        *product(("max_prefixes", "trace_max_tasks"), (0, -1, 2.5, float("nan"), float("inf"), "", "2.5", [], {})),
    ],
    ids=lambda v: repr(v)[:20],
)
def test_an_option_that_cannot_be_read_is_refused_by_name_and_value(name, value):
    with pytest.raises(ValueError, match="efficiency.") as refusal:
        given({name: value})
    assert str(refusal.value).startswith(f"efficiency.{name.replace('_', '-')} is {value!r}: ")


def test_an_option_of_the_configuration_is_refused_likewise():
    with (
        dask.config.set({"efficiency.max-prefixes": 0}),
        pytest.raises(ValueError, match="efficiency.max-prefixes is 0: expected a whole number, at least 1"),
    ):
        resolve({})


@property_of(plain_data)
def test_any_value_is_read_or_refused_by_name(value):
    for name in OPTIONS:
        try:
            given({name: value})
        except ValueError as refusal:
            assert str(refusal).startswith("efficiency.")
