from __future__ import annotations

from dask_efficiency.accounts.sensors.rates import WRAP, Rates


def rates_of(*values: float) -> list[float | None]:
    rates: Rates[str] = Rates()
    return [rates.take({"bytes": value}, at=2.0 * i).get("bytes") for i, value in enumerate(values)]


def test_a_rate_is_by_how_much_a_counter_grows_in_a_second():
    assert rates_of(10, 30, 30) == [None, 10.0, 0.0]


def test_a_counter_of_32_bits_that_begins_anew_goes_on():
    assert rates_of(WRAP - 50, 50) == [None, 50.0]


def test_after_a_reset_there_is_no_rate_rather_than_a_wrong_one():
    assert rates_of(3e9, 7, 9) == [None, None, 1.0]
    assert rates_of(2.0**40, 7) == [None, None]


def test_devices_that_come_and_go_make_no_rate_jump():
    rates = Rates()
    rates.take({"a": 0}, at=0)
    assert rates.take({"a": 10, "b": 1e12}, at=1) == {"a": 10}
    assert rates.take({"b": 1e12 + 5}, at=2) == {"b": 5}
    assert rates.take({"a": 20, "b": 1e12 + 5}, at=3) == {"b": 0}


def test_two_readings_at_one_instant_have_no_rate():
    rates = Rates()
    rates.take({"a": 0}, at=1)
    assert rates.take({"a": 1}, at=1) == {}
