"""Any run can be judged, with or without optional columns, hosts, groups and history."""

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.report.sections.stragglers import document
from dask_efficiency.runs.stragglers.offline import find_stragglers, judge
from dask_efficiency.runs.stragglers.tables import OPTIONAL
from dask_efficiency.show.terminal import plain
from tests.runs.stragglers.tables_of_tasks import slowed, tasks

OTHERS = ("host", "group", "key")
columns = st.sets(st.sampled_from([*OPTIONAL, *OTHERS]))


def whole(workers: int, per_worker: int, seed: int, slow: tuple[int, ...] = (), times: float = 3.0) -> pd.DataFrame:
    """A run of which everything is known; some workers are slow at all that they do."""
    rng = np.random.default_rng(seed)
    frame = tasks(workers, per_worker=per_worker, seed=seed)
    number = frame.worker.str[1:].astype(int)
    longer = np.where(number.isin(slow), times, 1.0)
    for name in OPTIONAL[1:]:
        scale = 1e6 if name.endswith("bytes") else 0.2
        frame[name] = scale * np.exp(0.1 * rng.standard_normal(len(frame))) * (1 if scale > 1 else longer)
    frame["host"] = "node-" + (number // 3).astype(str)
    frame["group"] = (number % 2).astype(str)
    return slowed(frame, [f"w{i:02}" for i in slow], times, cpu_too=False)


def without(frame: pd.DataFrame, absent: set[str]) -> pd.DataFrame:
    return frame.drop(columns=[name for name in absent if name in frame])


@st.composite
def runs(draw: st.DrawFn) -> pd.DataFrame:
    workers = draw(st.integers(1, 12))
    slow = tuple(draw(st.sets(st.integers(0, workers - 1), max_size=6)))
    times = draw(st.sampled_from([1.0, 1.5, 4.0, 1e6]))
    frame = whole(workers, draw(st.integers(1, 12)), draw(st.integers(0, 99)), slow, times)
    frame = frame.iloc[: draw(st.sampled_from([0, 1, 7, len(frame)]))].copy()
    if draw(st.booleans()):
        frame.loc[frame.index[draw(st.integers(0, len(frame))) :], "stop"] = np.nan
    if draw(st.booleans()):
        frame["cpu_seconds"] = 0.0
    return without(frame, draw(columns))


@given(run=runs(), history=st.lists(runs(), max_size=3), factor=st.sampled_from([0.1, 1.0]))
def test_a_run_can_be_judged_whatever_is_known_of_it(run, history, factor):
    found = judge(run, history=history, factor=factor)
    workers, hosts = set(run.worker), set(run.host) if "host" in run else set()
    for one in found.slow_workers:
        assert one.worker in workers if one.worker else one.host in hosts
        assert one.host in hosts or not one.host
    assert set(found.insufficient) <= workers
    assert plain(document(found, "any")).isascii()


def test_a_host_that_is_judged_as_a_whole_by_being_blocked_is_found_with_history() -> None:
    usual = [whole(12, 12, seed).assign(group="") for seed in range(3)]
    blocked = whole(12, 12, 9).assign(group="")
    on_host = blocked.host == "node-1"
    blocked.loc[on_host, "disk_seconds"] = 5.0
    found = find_stragglers(blocked, history=usual)
    assert {(one.worker, one.host, str(one.cause)) for one in found} == {("", "node-1", "disk")}
