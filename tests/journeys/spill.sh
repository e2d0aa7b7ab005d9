# Somebody whose test may not spill.
# pages: docs/pytest.md docs/report.md
# installs: pytest
# answer: beyond its limits: .* in spill, and there may be none
cat > test_job.py <<'END'
import pytest
from distributed import Client, LocalCluster


def block(number):
    return bytearray(30 << 20)


@pytest.mark.efficiency(no=["spill"])
def test_blocks():
    options = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "400 MiB", "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        held = client.map(block, range(12))
        assert sum(client.gather(client.map(len, held))) == 12 * (30 << 20)
END
code=0
pytest --dask-efficiency runs test_job.py || code=$?
test "$code" = 1
dask-efficiency report runs/*.json
