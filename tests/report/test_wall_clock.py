from dataclasses import replace

import pytest
from hypothesis import given

from dask_efficiency.accounts.lines import Frame
from dask_efficiency.report.findings import find
from dask_efficiency.report.values import DASK_ACTIVITIES, OWN_ACTIVITIES, ClientRow, GraphsSent
from dask_efficiency.report.wall_clock import (
    client_doing,
    client_line,
    ideal_time_lines,
    sender,
    sending,
    wall_clock_parts,
    work_of_client,
)
from dask_efficiency.runs.path.parts import PathSummary
from tests.report.samples import causes, report_of, reports, seconds

CHAIN = PathSummary("A chain", 8.0, {}, 7.9, 1.0, 3.1)


def test_the_parts_of_the_wall_clock_add_up_to_it_and_those_below_5_percent_are_left_out() -> None:
    times = {"window_seconds": 8.0, "cluster_seconds": 2.0, "no_workers_seconds": 5.0}
    report = report_of(seconds(thread_cpu=2), phases={"run": 2.0}, **times)
    assert wall_clock_parts(report) == {"without any worker": 5.0, "of work on the cluster": 2.0, "on the client": 1.0}
    # a client that is busy with Dask is distinguished from the user's code
    busy = report_of(window_seconds=5.0, cluster_seconds=1.0, phases={"optimize": 3.0, "gather": 0.5})
    assert next(iter(wall_clock_parts(busy))) == "on the client, mostly its optimize"
    for client, parts in ((4.9, 1), (5.1, 2)):
        assert len(wall_clock_parts(report_of(window_seconds=100.0, cluster_seconds=100.0 - client))) == parts


@given(reports)
def test_the_parts_of_any_wall_clock_are_positive_and_nearly_all_and_no_ideal_is_longer(report):
    whole = report.cluster_seconds + report.no_workers_seconds + report.client_seconds
    assert all(seconds >= 0 for seconds in wall_clock_parts(report).values())
    assert sum(wall_clock_parts(report).values()) >= 0.89 * whole
    assert 0.0 <= report.ideal_seconds <= report.cluster_seconds


@pytest.mark.parametrize(
    ("given", "binding"),
    [
        # 16 threads on 2 cores: 5.6 s of CPU are 0.35 s by threads, and 2.8 s by cores.
        ({"cores": 2.0}, 2.8),
        ({"cores": 16.0}, 0.35),
        ({"path": CHAIN}, 3.1),
        # More than the run took itself: clocks, or a processor that nobody counted.
        ({"cores": 0.5}, 3.2),
    ],
)
def test_the_ideal_is_the_largest_bound_and_unknown_ones_are_named(given: dict, binding: float) -> None:
    whole, waiting = seconds(thread_cpu=5.6, thread_noncpu=45.6), {"w0": causes(**{"thread-noncpu/core": 45.0})}
    report = report_of(whole, window_seconds=3.2, cluster_seconds=3.2, causes_by_worker=waiting, **given)
    assert report.ideal_seconds == pytest.approx(binding)
    (unknown,) = ideal_time_lines(report_of(seconds(thread_cpu=4, idle=5), window_seconds=4.5))
    assert unknown == (
        "useful work takes at least 2.0 s by 2 threads; not known: how many cores the workers share "
        "and the longest chain of tasks (trace=True tells)"
    )


def test_computing_of_libraries_counts_against_the_cores() -> None:
    # pd.read_parquet: Arrow's threads compute for 1.8 s of the 2 s in which tasks wait for them
    whole = seconds(thread_cpu=0.1, library_threads=1.8, thread_noncpu=0.2)
    report = report_of(whole, window_seconds=1.0, cluster_seconds=1.0, cores=2.0)
    assert report.ideal_bounds == {"slots": pytest.approx(1.9 / 2.1), "cores": pytest.approx(0.95)}
    # a product of matrices: the task's thread computes for 0.9 s, and those of BLAS for as long
    whole = seconds(thread_cpu=0.9, library_threads=0.1)
    report = report_of(whole, cluster_seconds=1.0, cores=2.0, outside={"CPU of other threads": 0.9})
    assert report.ideal_bounds["cores"] == pytest.approx(0.9)


def test_without_samples_nothing_is_attributed_to_libraries() -> None:
    whole = seconds(thread_cpu=0.1, thread_noncpu=2)
    report = report_of(whole, window_seconds=1.0, cluster_seconds=1.0, cores=2.0, outside={"CPU of other threads": 1.8})
    (found,) = find(report)
    assert found.saves_seconds is None
    assert found.lines[0].startswith("Tasks off the CPU, for no known reason: 2.0 s of thread time.")


LOAD = Frame("<module>", "/home/me/load.py", 12)
OPEN = Frame("open_mfdataset", "/opt/lib/python3.12/site-packages/xarray/backends/api.py", 1600)
RESULT = Frame("Future.result", "/opt/lib/python3.12/site-packages/distributed/client.py", 400)


def client_row(activity: str, *stack: Frame, seconds: float, idle: float = 1.0) -> ClientRow:
    """A row of which this share is without work on the cluster."""
    return ClientRow(activity, stack, round(seconds * 1e9), round(idle * seconds * 1e9), 0)


@pytest.mark.parametrize("activity", [*OWN_ACTIVITIES, *DASK_ACTIVITIES])
def test_time_without_work_is_named_by_what_the_client_did_and_where(activity: str) -> None:
    other = client_row("build", Frame("f", "/home/me/other.py", 3), seconds=1)
    report = report_of(
        seconds(thread_cpu=2),
        window_seconds=11.0,
        cluster_seconds=1.0,
        phases={"run": 1.0},
        client=(client_row(activity, LOAD, OPEN, seconds=9), other),
    )
    (found,) = (one for one in find(report) if one.kind == "client")
    assert (DASK_ACTIVITIES | OWN_ACTIVITIES)[activity] in found.title or activity == "wait"
    assert found.where == "`open_mfdataset` in load.py:12"
    assert found.saves_seconds == pytest.approx(10)
    assert next(iter(wall_clock_parts(report))) == found.title.partition(", ")[2]


def test_several_activities_are_of_the_users_code_or_of_dask_by_what_most_are() -> None:
    rows = [("compute", 2), ("sleep", 2), ("hash", 3)]
    report = report_of(client=tuple(client_row(name, LOAD, seconds=n) for name, n in rows))
    found = client_doing(report)
    assert found is not None
    assert (found.words, found.activity, found.line, found.share) == (
        "on the client, in your own code",
        "own",
        LOAD,
        1.0,
    )
    report = report_of(client=tuple(client_row(name, LOAD, seconds=n) for name, n in [*rows, ("build", 3)]))
    found = client_doing(report)
    assert found is not None
    assert (found.words, found.activity) == ("on the client", "")
    assert client_doing(report_of()) is None


def test_a_line_that_has_little_of_the_time_is_not_named() -> None:
    spread = tuple(client_row("build", LOAD._replace(line=line), seconds=1) for line in range(9))
    report = report_of(client=spread)
    assert client_line(report, client_doing(report)) == ""


def test_of_a_function_that_dask_calls_the_line_that_called_dask_is_named_and_of_own_code_the_innermost() -> None:
    inside = Frame("simulate", "/home/me/model.py", 59)
    dask_calls = Frame("emulate", "/opt/lib/python3.12/site-packages/dask/dataframe/core.py", 9)
    for activity, line in (
        ("build", "`emulate` in load.py:12"),
        ("compute", "`simulate` in model.py:59, called at load.py:12"),
    ):
        report = report_of(client=(client_row(activity, LOAD, dask_calls, inside, seconds=9),))
        assert client_line(report, client_doing(report)) == line


def test_the_number_of_computations_is_said_of_a_line_that_waits_for_each() -> None:
    row = client_row("wait", LOAD, OPEN, seconds=9)
    for sent, beginning in ((GraphsSent(396, 390), "396 computations one after the other, "), (GraphsSent(396, 9), "")):
        report = report_of(client=(row,), sent_by={"load.py:12": sent})
        assert client_line(report, client_doing(report)) == f"{beginning}`open_mfdataset` in load.py:12"


def test_of_a_call_of_an_object_the_user_s_function_is_named_too() -> None:
    call = OPEN._replace(function="DelayedLeaf.__call__")
    for function, end in (("<module>", ""), ("fit", ", in `fit`"), ("fit.<locals>.<listcomp>", ", in `fit`")):
        report = report_of(client=(client_row("build", LOAD._replace(function=function), call, seconds=9),))
        assert client_line(report, client_doing(report)) == f"`__call__` in load.py:12{end}"


def test_the_line_that_waits_for_graphs_need_not_be_that_of_most_time() -> None:
    rows = (
        client_row("compute", LOAD, seconds=6),
        client_row("wait", LOAD._replace(line=20), RESULT, seconds=2, idle=0.5),
    )
    report = report_of(client=rows, sent_by={"load.py:12": GraphsSent(1, 1), "load.py:20": GraphsSent(30, 30)})
    assert sender(report) == "30 computations one after the other, `result` in load.py:20"
    assert work_of_client(report) == 1.0
    found = sending(report)
    assert found is not None
    assert (found.share, found.by_library) == (0.25, False)


def test_what_a_line_does_besides_sending_is_not_what_it_waits_for() -> None:
    stdlib = Frame("urlopen", "/usr/lib/python3.12/urllib/request.py", 200)
    get = Frame("get", "/opt/lib/python3.12/site-packages/requests/api.py", 60)
    for other, activity in ((get, "network"), (stdlib, "network"), (Frame("(just before)", "", 0), "compute")):
        rows = (client_row(activity, LOAD, other, seconds=8), client_row("wait", LOAD, RESULT, seconds=2))
        report = report_of(client=rows, sent_by={"load.py:12": GraphsSent(30, 30)})
        found = sending(report)
        assert found is not None
        assert (found.line.function, found.by_library, found.share) == ("Future.result", False, 1.0)
        assert sender(report) == "30 computations one after the other, `result` in load.py:12"
        assert client_line(report, client_doing(report)) == f"`{other.function}` in load.py:12"
    rows = (client_row("wait", LOAD, OPEN, RESULT, seconds=2),)
    found = sending(report_of(client=rows, sent_by={"load.py:12": GraphsSent(30, 30)}))
    assert found is not None
    assert (found.line.function, found.by_library) == ("open_mfdataset", True)


def test_where_nothing_ran_on_the_cluster_the_client_is_a_finding() -> None:
    row = client_row("local", LOAD, seconds=9)
    report = report_of(seconds(no_work=18), window_seconds=9.0, cluster_seconds=0.0, phases={"run": 0.0}, client=(row,))
    (found,) = find(report)
    assert (found.kind, found.where) == ("client", "`<module>` in load.py:12")
    assert found.advice.startswith("Compute with the client")
    # once, also where a little work was outstanding, which no thread had
    assert [one.kind for one in find(replace(report, cluster_seconds=0.1))].count("client") == 1
    # and not for a moment
    assert find(replace(report, window_seconds=9.0, no_workers_seconds=8.9)) == ()
