from __future__ import annotations

import pytest

from dask_efficiency.report import efficiency_report as module
from dask_efficiency.report.values import Saved
from tests.report.samples import by_hand

SAVED = Saved(3.0, 2.0, 4.0)


def test_where_nothing_simulates_a_report_promises_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "offered", lambda name: None)
    found = module._with_savings(by_hand())
    assert found.savings == {}
    assert found.notes[-1] == module.NOT_SIMULATED
    monkeypatch.setattr(module, "offered", lambda name: lambda report: {"all": SAVED})
    found = module._with_savings(by_hand())
    assert (found.savings, found.notes) == ({"all": SAVED}, by_hand().notes)
