from __future__ import annotations

import pytest

from dask_efficiency.report import efficiency_report as module
from tests.report.samples import by_hand


def test_where_nothing_simulates_a_report_promises_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "offered", lambda name: None)
    found = module._with_saving(by_hand())
    assert found.without_largest_seconds is None
    assert found.notes[-1] == module.NOT_SIMULATED
    monkeypatch.setattr(module, "offered", lambda name: lambda report: 3.0)
    found = module._with_saving(by_hand())
    assert (found.without_largest_seconds, found.notes) == (3.0, by_hand().notes)
