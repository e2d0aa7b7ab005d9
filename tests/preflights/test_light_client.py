from __future__ import annotations

import socket

import pytest
from distributed import LocalCluster, Security

from dask_efficiency.preflights.light_client import LightClient
from tests.plugin.watch import eventually


@pytest.mark.cluster
def test_a_scheduler_knows_it_until_it_is_left() -> None:
    with LocalCluster(n_workers=0, processes=False, protocol="tcp", dashboard_address=":0") as cluster:
        with LightClient(cluster.scheduler_address, Security(), seconds=60) as client:
            assert client.id in cluster.scheduler.clients
        eventually(lambda: client.id not in cluster.scheduler.clients)


def test_where_nobody_answers_the_address_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with (
            pytest.raises(OSError, match=rf"no scheduler answered at {address} in 0\.2 s"),
            LightClient(address, Security(), seconds=0.2),
        ):
            pytest.fail("it did")
