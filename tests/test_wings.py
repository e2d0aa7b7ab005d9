"""What wings offer the core: every name of the table leads to something."""

from __future__ import annotations

from dask_efficiency.plugin.parts import SchedulerPart, WorkerPart
from dask_efficiency.plugin.wings import ANSWERED_BY, OFFERED, offered


def test_every_name_of_the_table_is_there_and_a_part_of_its_kind() -> None:
    kinds = {"worker": WorkerPart, "scheduler": SchedulerPart}
    for name in OFFERED:
        found = offered(name)
        assert found is not None
        kind = kinds.get(name.partition("/")[0])
        assert kind is None or issubclass(found, kind)
    for action, part in ANSWERED_BY.items():
        assert part in OFFERED
        assert action.partition("/")[0] == part.partition("/")[0]
