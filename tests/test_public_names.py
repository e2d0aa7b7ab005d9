"""The public names: what they are, whatever was imported before them."""

import subprocess
import sys

import dask_efficiency

CHECK = """
import importlib, pkgutil, types
import dask_efficiency

for module in pkgutil.walk_packages(dask_efficiency.__path__, "dask_efficiency."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:  # an extra that is not installed
        assert not error.name.startswith("dask_efficiency"), error
hidden = [name for name in dask_efficiency.__all__ if isinstance(getattr(dask_efficiency, name), types.ModuleType)]
assert not hidden, hidden
"""


def test_no_module_takes_a_public_name_away_once_everything_is_imported():
    subprocess.run([sys.executable, "-c", CHECK], check=True)


def test_every_public_name_is_where_it_says():
    for name in dask_efficiency.__all__:
        value = getattr(dask_efficiency, name)
        assert getattr(value, "__name__", name) == name
