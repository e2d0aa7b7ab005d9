import re
from dataclasses import replace

import pytest
from distributed import Client

from dask_efficiency.report import efficiency_report as module
from dask_efficiency.report.values import Saved
from tests.report.samples import by_hand, causes, report_of, seconds
from tests.simulated_cluster import MS, Graph, simulate

SAVED = Saved(3.0, 2.0, 4.0)
CLIENT = Client.__new__(Client)


def test_without_a_simulation_a_report_promises_nothing_and_has_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "offered", lambda name: None)
    found = module._with_savings(by_hand())
    assert found.savings == {}
    assert found.notes[-1] == module.NOT_SIMULATED
    monkeypatch.setattr(module, "offered", lambda name: lambda report, notes: {"all": SAVED})
    found = module._with_savings(by_hand())
    assert (found.savings, found.notes) == ({"all": SAVED}, by_hand().notes)


def test_simulations_end_after_the_seconds_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def simulated(report, notes, seconds):
        notes.append(f"not simulated within {seconds} s")
        return {}

    monkeypatch.setattr(module, "offered", lambda name: simulated)
    assert module._with_savings(by_hand(), seconds=60).notes[-1] == "not simulated within 60 s"
    with pytest.raises(ValueError, match=re.escape("savings is -1; expected seconds, 0 or more")):
        module.efficiency_report(trace=True, savings=-1)
    with pytest.raises(ValueError, match="savings is inf; expected seconds, 0 or more and finite"):
        module.efficiency_report(trace=True, savings=float("inf"))


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


def test_a_trace_has_the_share_of_waiting_in_which_each_prefix_waited_for_a_core_and_for_the_gil() -> None:
    whole = seconds(thread_cpu=2, thread_noncpu=2)
    waits = {"thread-noncpu/core": 0.5, "thread-noncpu/gil": 1.0, "thread-noncpu/sleep": 0.5}
    rows = {"read": causes(**waits), "idle": causes()}
    report = report_of(whole, by_prefix={"read": whole, "idle": seconds(thread_cpu=1)}, causes_by_prefix=rows)
    assert module._waits(report, "core") == {"read": 0.25}
    assert module._waits(report, "gil") == {"read": 0.5}
    # What is not known is taken to be as the rest, unless it is most.
    some, most = ({**waits, "thread-noncpu/unknown": ns} for ns in (0.5, 2.5))
    rows = {"some": causes(**{**some, "thread-noncpu/sleep": 0.0}), "most": causes(**most)}
    half = report_of(whole, by_prefix={"some": whole, "most": seconds(thread_noncpu=4.5)}, causes_by_prefix=rows)
    assert module._waits(half, "core") == {"some": pytest.approx(1 / 3)}
    assert module._waits(replace(report, not_sampled={"w0": "nobody looked"}), "core") == {}


def test_a_name_that_is_no_utf8_can_travel() -> None:
    assert module.efficiency_report(name="jo\udcffb.py")._name == r"jo\udcffb.py"
