from types import SimpleNamespace
from typing import Any

import dask
import distributed
from distributed.versions import get_versions

from dask_efficiency.plugin.environment import (
    SHOWN,
    SHOWN_IF_CHANGED,
    SHOWN_IF_CHANGED_BY_CLIENT,
    of_client,
    of_cluster,
    settings,
)


def state(**packages: Any) -> SimpleNamespace:
    """A worker or client of the scheduler's versions but for some."""
    mine = get_versions()["packages"]
    return SimpleNamespace(versions={"packages": {**mine, **packages}}, nthreads=2, memory_limit=2**30)


def test_a_cluster_of_equal_versions_has_no_version_notes() -> None:
    found = of_cluster([state(), state()], [state()])
    assert found["distributed"] == distributed.__version__
    assert (found["workers"], found["threads"], found["threads of a worker"]) == ("2", "4", "2")
    assert found["memory limit of a worker"] == "1.00 GiB"
    assert not [name for name in found if " on " in name]


def test_differing_versions_are_named_with_counts() -> None:
    workers = [state(), state(dask="2026.1.0"), state(dask="2026.1.0", numpy=None)]
    found = of_cluster(workers, [state(dask="2025.9.9")])
    assert found["dask on workers"] == f"2026.1.0 (2); scheduler {dask.__version__}"
    assert found["dask on clients"] == f"2025.9.9 (1); scheduler {dask.__version__}"
    assert found["numpy on workers"].startswith("None (1); ")


def test_workers_of_different_sizes_are_a_range() -> None:
    small, large = state(), state()
    large.nthreads, large.memory_limit = 8, 2**34
    found = of_cluster([large, small], [])
    assert found["threads of a worker"] == "2 to 8"
    assert found["memory limit of a worker"] == "1.00 GiB to 16.00 GiB"


def test_a_cluster_without_workers_or_versions_has_an_environment() -> None:
    assert of_cluster([], [])["threads of a worker"] == "-"
    silent = SimpleNamespace(versions={}, nthreads=1, memory_limit=0)
    assert not [name for name in of_cluster([silent], [silent]) if " on " in name]


def test_a_changed_setting_is_shown_with_its_default() -> None:
    with dask.config.set({"distributed.scheduler.worker-saturation": 2.5}):
        assert settings(SHOWN)["distributed.scheduler.worker-saturation"] == "2.5 (default 1.1)"
    with dask.config.set({"optimization.fuse.active": None}):
        assert "optimization.fuse.active" not in of_client()
    with dask.config.set({"optimization.fuse.active": True}):
        assert of_client()["optimization.fuse.active"] == "True (default None)"


def test_every_setting_is_one_of_dasks_and_none_can_hold_a_secret() -> None:
    defaults = dask.config.merge(*dask.config.defaults)
    known = object()
    for name in (*SHOWN, *SHOWN_IF_CHANGED, *SHOWN_IF_CHANGED_BY_CLIENT):
        value = dask.config.get(name, known, config=defaults)
        assert value is not known, f"Dask has no setting {name}"
        assert not isinstance(value, dict)
    with dask.config.set({"my.token": "s3cret", "distributed.comm.tls.scheduler.key": "s3cret"}):
        assert "s3cret" not in str(of_cluster([state()], [state()]) | of_client())


def test_a_long_value_is_cut() -> None:
    with dask.config.set({"distributed.comm.compression": "x" * 10_000}):
        assert len(settings(["distributed.comm.compression"])["distributed.comm.compression"]) < 100
