import re

import pytest
from distributed import Client

from benchmarks.simulated_cluster import MS, Graph, simulate
from dask_efficiency.report import efficiency_report as module
from dask_efficiency.report.values import Saved
from tests.report.samples import by_hand

SAVED = Saved(3.0, 2.0, 4.0)
CLIENT = Client.__new__(Client)


def test_without_a_simulation_a_report_promises_nothing_and_has_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "offered", lambda name: None)
    found = module._with_savings(by_hand())
    assert found.savings == {}
    assert found.notes[-1] == module.NOT_SIMULATED
    monkeypatch.setattr(module, "offered", lambda name: lambda report: {"all": SAVED})
    found = module._with_savings(by_hand())
    assert (found.savings, found.notes) == ({"all": SAVED}, by_hand().notes)


def test_a_report_keeps_the_twenty_longest_tasks_of_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "offered", lambda name: None)
    prefixes = [f"p{i}" for i in range(21) for _ in range(5)]
    times = [time * MS for i in range(21) for time in (1, 1, 1, 1, 100 + 10 * i)]
    trace = simulate(Graph(prefixes, [()] * 105, times, [100] * 105, range(105)))
    found = module._with_trace(by_hand(), trace)
    assert [one.prefix for one in found.long_tail] == [f"p{i}" for i in range(20, 0, -1)]


@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        ([3], {}, "filename is 3; expected a path or URL such as 'run.html'"),
        (["a.html"], {"filename": "b.html"}, "'a.html' is given first, and again by its name"),
        ([CLIENT], {"client": CLIENT}, "expected a path or URL such as 'run.html', or one client"),
        ([], {"client": "tcp://host:8786"}, "client is 'tcp://host:8786'; expected a distributed."),
        ([], {"filename": CLIENT}, "expected a path or URL such as 'run.html', or one client"),
    ],
    ids=range(5),
)
def test_anything_but_a_file_and_a_client_is_refused(given, named, message, monkeypatch):
    monkeypatch.setattr(Client, "__repr__", lambda client: "<Client>")
    with pytest.raises(TypeError, match=re.escape(message)):
        module.efficiency_report(*given, **named)
