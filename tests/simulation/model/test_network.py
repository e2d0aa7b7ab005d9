from __future__ import annotations

import pytest

from dask_efficiency.simulation.model.network import ConstantNetwork, InstantNetwork, network_from_dict


@pytest.mark.parametrize("network", [InstantNetwork(), ConstantNetwork(1e8, 1e-3)])
def test_a_network_is_made_again_from_its_description(network) -> None:
    assert network_from_dict(network.to_dict()) == network


def test_a_network_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the kind of a network.*'topology'.*got 'ether'"):
        network_from_dict({"kind": "ether"})


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bandwidth_that_cannot_be_is_refused(bandwidth: float) -> None:
    with pytest.raises(ValueError, match="expected a bandwidth above 0"):
        ConstantNetwork(bandwidth)


def test_a_latency_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected a latency of at least 0 s, got -1"):
        ConstantNetwork(1e8, -1)
