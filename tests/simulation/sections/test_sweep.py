import pytest

from dask_efficiency.simulation.sections.sweep import curve, headline, knee, page, table
from tests.simulation.model.test_sweeps import by_memory, sweep
from tests.simulation.simulation_samples import swept


def test_the_headline_has_the_number_of_workers_that_is_enough() -> None:
    assert headline(sweep({2: 10.0, 4: 5.0, 8: 2.7, 16: 2.5})) == (
        "8 workers: 2.7 s, within 10 % of the fastest (16 workers, 2.5 s), at 54 % of its cost"
    )
    assert headline(sweep({2: 10.0, 4: 5.0})) == (
        "4 workers: 5.0 s, the least of all; none within 10 % of it is cheaper"
    )


def test_the_knee_is_the_size_up_to_which_more_workers_are_worth_it() -> None:
    assert knee(sweep({2: 10.0, 4: 6.0, 8: 5.5})) == (
        "Up to 4 workers, twice as many save at least 20 % of the time; beyond, less."
    )
    assert knee(sweep({2: 10.0, 4: 9.0})) == "Already beyond 2 workers, twice as many save less than 20 % of the time."
    assert knee(sweep({2: 10.0, 4: 5.0})).startswith("Up to the largest of these clusters, ")
    assert knee(sweep({2: 10.0})) == ""


def test_a_sweep_of_memory_says_which_limit_is_enough() -> None:
    found = by_memory({1: 9.0, 2: 5.0, 4: 2.6, 8: 2.5}, full=[1])
    assert headline(found) == "4.0 GiB a worker: 2.6 s, within 10 % of the fastest (8.0 GiB a worker, 2.5 s)"
    assert headline(by_memory({1: 2.5})).endswith("the least of all; none within 10 % of it is smaller")
    assert knee(found) == "Up to 4.0 GiB a worker, twice as much saves at least 20 % of the time; beyond, less."
    assert knee(by_memory({1: 9.0, 2: 5.0})).startswith("Up to the largest of these clusters, twice the memory saves")
    cells = table(found)
    assert cells.heads[0] == "memory"
    assert cells.heads[-2:] == ("nothing spills with", "too full")
    assert [(row[0], *row[-2:]) for row in cells.rows] == [
        ("1.0 GiB", "3.0 GiB", "100 %"),
        *((size, "3.0 GiB", "0 %") for size in ("2.0 GiB", "4.0 GiB", "8.0 GiB")),
    ]
    point = curve(found).points[0]
    assert (point.label, point.ideal) == ("1.0 GiB", 2.5)


def test_each_cluster_has_a_row_and_the_best_stands_out() -> None:
    found = table(sweep({2: 10.0, 4: 5.0, 8: 4.9}))
    assert found.rows[0] == ("2", "10.0", "9.0 to 11.0", "1.00x", "50 %", "60 %", "20.0")
    assert found.heads[-1] == "worker-s"
    assert found.strong == (1,)
    assert [drawing.share for drawing in found.drawings if drawing] == pytest.approx([1, 0.5, 0.49])  # type: ignore[union-attr]


def test_a_price_takes_the_place_of_worker_seconds() -> None:
    found = table(sweep({2: 1800.0, 4: 900.0}, price=2.0))
    assert found.heads[-1] == "cost"
    assert [row[-1] for row in found.rows] == ["2.00", "2.00"]
    assert dict(page(swept(price=3600.0)).stats)["its cost"]


def test_the_curve_has_the_interval_and_perfect_scaling() -> None:
    first, second = curve(sweep({2: 10.0, 8: 4.0})).points
    assert (first.at, first.seconds, first.low, first.high, first.ideal) == (2, 10.0, 9.0, 11.0, 10.0)
    assert second.ideal == 2.5
    assert second.hint == "8 workers: 4.0 s, 50 % efficient"


def test_without_intervals_the_band_is_the_line() -> None:
    found = swept((2, 4), seeds=1)
    assert all(point.low == point.seconds == point.high for point in curve(found).points)
    assert {row[2] for row in table(found).rows} == {"-"}
