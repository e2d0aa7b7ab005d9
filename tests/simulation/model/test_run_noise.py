from __future__ import annotations

import pytest

from dask_efficiency.simulation.model.run_noise import MAX_NOISE, NOISE_PER_SECOND, computing_share, run_noise


def test_a_run_differs_by_less_of_its_time_the_longer_it_computes() -> None:
    assert run_noise({"compute-cpu": 4.0}, 4.0) == pytest.approx(NOISE_PER_SECOND / 2)
    assert run_noise({"compute-cpu": 100.0}, 100.0) == pytest.approx(NOISE_PER_SECOND / 10)
    assert run_noise({"compute-cpu": 0.01}, 0.01) == MAX_NOISE


def test_only_what_computes_differs() -> None:
    assert run_noise({"compute-noncpu": 3.0, "transfer": 1.0}, 4.0) == 0.0
    assert run_noise({"compute-cpu": 1.0, "compute-noncpu": 3.0}, 4.0) == pytest.approx(NOISE_PER_SECOND / 4)


def test_the_share_that_computes_is_of_the_whole_path() -> None:
    assert computing_share({"compute-cpu": 1.0, "spill": 3.0}, 4.0) == 0.25
    assert computing_share({}, 4.0) == 0.0


def test_nothing_has_no_noise() -> None:
    assert (run_noise({}, 0.0), computing_share({}, 0.0)) == (0.0, 0.0)
