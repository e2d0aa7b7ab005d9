from __future__ import annotations

from typing import Any

import pytest

from dask_efficiency.adapters.dask_engine.settings import SettingError, check_settings


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("distributed.scheduler.work-staeling", False, "did you mean distributed.scheduler.work-stealing?"),
        (7, 1, "Dask has no setting 7"),
        ("distributed.scheduler.worker-saturation", "abc", "is 'abc'; expected a number such as 1.1"),
        ("distributed.scheduler.worker-saturation", -1, "is -1; expected a number such as 1.1"),
        ("distributed.scheduler.work-stealing", "abc", "is 'abc'; expected True or False"),
        ("distributed.scheduler.unknown-task-duration", "soon", "is 'soon'; expected a time such as 500ms"),
    ],
)
def test_a_setting_or_a_value_that_dask_cannot_have_is_refused(name: Any, value: Any, said: str) -> None:
    with pytest.raises(SettingError) as refused:
        check_settings({name: value})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("distributed.scheduler.worker-saturation", float("inf")),
        ("distributed.scheduler.worker-saturation", "inf"),
        ("distributed.worker.memory.target", False),
        ("distributed.scheduler.bandwidth", "10MB"),
        ("distributed.scheduler.unknown-task-duration", 2),
        ("distributed.scheduler.work-stealing-interval", "100ms"),
        ("distributed.worker.memory.max-spill", "10GB"),
    ],
)
def test_what_dask_takes_is_taken(name: str, value: Any) -> None:
    check_settings({name: value})
