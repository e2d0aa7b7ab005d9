"""``dask_efficiency.stragglers`` is a package, and can be called."""

import subprocess
import sys

import pytest

ORDERS = {
    "the name first": "from dask_efficiency import stragglers; import dask_efficiency.stragglers.finding",
    "a module first": "import dask_efficiency.stragglers.finding; from dask_efficiency import stragglers",
    "as an attribute": "import dask_efficiency; stragglers = dask_efficiency.stragglers",
}


@pytest.mark.parametrize("order", ORDERS)
def test_it_is_the_same_in_whatever_order_it_is_imported(order: str):
    check = """
import dask_efficiency
from dask_efficiency.stragglers.finding import Finding
assert callable(stragglers), stragglers
assert dask_efficiency.stragglers is stragglers
assert stragglers.finding.Finding is Finding
try:
    stragglers()
except ValueError as error:  # there is no client
    assert 'client' in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-W", "error::ImportWarning", "-c", ORDERS[order] + check], check=True)
