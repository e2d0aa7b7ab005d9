"""The public names: few in the package itself, the rest in their wings; what they are, whatever was imported before."""

import importlib
import subprocess
import sys

import pytest

import dask_efficiency

#: Folders with public names of their own.
FOLDERS = ["fleet", "histories", "live", "mpi", "preflights", "runs", "simulation", "torch_traces"]

CHECK = """
import importlib, pkgutil, random, sys, types
import dask_efficiency

names = [module.name for module in pkgutil.walk_packages(dask_efficiency.__path__, "dask_efficiency.")]
random.Random(int(sys.argv[1])).shuffle(names)
for name in names:
    if not name.endswith("__main__"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:  # an extra that is not installed
            assert not error.name.startswith("dask_efficiency"), error
folders = [dask_efficiency, *(importlib.import_module(f"dask_efficiency.{name}") for name in sys.argv[2:])]
hidden = [
    (folder.__name__, name)
    for folder in folders
    for name in folder.__all__
    if isinstance(getattr(folder, name), types.ModuleType)
]
assert not hidden, hidden
"""


@pytest.mark.parametrize("seed", range(3))
def test_no_module_takes_a_public_name_away_in_whatever_order_all_are_imported(seed: int) -> None:
    subprocess.run([sys.executable, "-c", CHECK, str(seed), *FOLDERS], check=True)


@pytest.mark.parametrize("folder", ["", *FOLDERS])
def test_every_folder_lists_its_public_names_and_no_others(folder: str) -> None:
    package = importlib.import_module(f"dask_efficiency.{folder}".rstrip("."))
    assert dir(package) == sorted(package.__all__)
    for name in package.__all__:
        value = getattr(package, name)
        assert getattr(value, "__name__", name) == name


def test_the_public_names_fit_on_one_screen() -> None:
    assert len(dask_efficiency.__all__) <= 26


def test_a_name_that_is_not_public_is_refused() -> None:
    for package in (dask_efficiency, importlib.import_module("dask_efficiency.fleet")):
        with pytest.raises(AttributeError, match="nothing_of_that_name"):
            package.nothing_of_that_name  # noqa: B018
