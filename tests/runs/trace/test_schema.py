import numpy as np
import pytest

from dask_efficiency import RunTrace
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.sensors import SENSORS
from dask_efficiency.accounts.tables import Clock, ColumnTable
from dask_efficiency.plugin.scheduler.heartbeats import DASK_METRICS
from dask_efficiency.runs.trace import chrome, schema
from dask_efficiency.runs.trace.batch import BLOCKED, RUN, TRANSFER
from dask_efficiency.runs.trace.recorder import SERIES
from dask_efficiency.runs.trace.run_trace import TABLES
from dask_efficiency.runs.trace.schema import RUN_INSTANTS, Phases, Runs, Stimuli, from_worker, instants

COLUMNS = [(table, name) for table, kind in TABLES.items() for name in kind.dtypes()]


def test_every_table_is_a_field_of_a_trace_and_those_with_columns_of_workers_travel() -> None:
    defined = {kind for kind in vars(schema).values() if isinstance(kind, type) and issubclass(kind, ColumnTable)}
    assert set(TABLES.values()) == defined - {ColumnTable}
    assert {table for table, kind in TABLES.items() if from_worker(kind)} == {"runs", "transfers", "blocked"}


def test_tables_on_the_wire_have_the_layout_of_their_schema() -> None:
    # Of SCHEMA 1 of a batch: another layout needs another number.
    assert (
        *("run_id", "received", "ready", "executing", "submitted", "start", "stop", "ended", "seceded"),
        *("thread", "slot", "after", "cpu_ns", "unspill_ns", "spill_ns"),
    ) == RUN
    assert TRANSFER == ("sender", "nbytes", "queued", "start", "stop", "arrived")
    assert BLOCKED == ("start", "stop", "moving_ns", "cause")


def test_the_instants_of_a_run_come_in_the_order_of_its_life() -> None:
    order = ("assigned", "received", "ready", "executing", "submitted", "start", "stop", "ended", "reported")
    assert order == RUN_INSTANTS
    assert set(instants(Runs, Clock.WORKER)) == {*order[1:-1], "seceded"}
    assert instants(Stimuli, Clock.DAY) == ("at",)
    assert instants(Phases) == ("start", "stop")


@pytest.mark.parametrize(("table", "name"), COLUMNS)
def test_a_column_has_a_unit_or_a_table_that_it_points_into(table: str, name: str) -> None:
    column, dtype = TABLES[table].schema()[name], TABLES[table].dtypes()[name]
    if column.clock is not None:
        assert (column.unit, dtype) == ("ns", np.int64)
    if name.endswith("_ns"):
        assert (column.unit, column.clock, column.missing, dtype) == ("ns", None, 0, np.int64)
    if isinstance(column.points_into, str):
        assert column.points_into in RunTrace.__dataclass_fields__
    if dtype in (np.int8, np.int16, np.int32):
        assert column.points_into is not None or (table, name) == ("runs", "slot")
    if dtype is np.float64:
        assert column.unit
    if column.from_worker:  # whole numbers
        assert dtype is not np.float64


@pytest.mark.parametrize("kind", TABLES.values(), ids=TABLES)
def test_a_row_of_which_nothing_is_known_fits_its_columns(kind: type[ColumnTable]) -> None:
    first = next(iter(kind.dtypes()))
    table = kind.from_columns({first: np.ones(2, kind.dtypes()[first])})
    for name, column in table.columns().items():
        assert column.dtype == kind.dtypes()[name]
        if name != first:
            np.testing.assert_array_equal(column, [kind.missing()[name]] * 2)


def test_counters_and_metrics_name_existing_columns_of_a_heartbeat() -> None:
    drawn = {column for lines in chrome._COUNTERS.values() for column in lines.values()}
    assert drawn < set(SERIES)
    # The rest are activities of the slots: every column of a heartbeat is filled from one or the other.
    filled = {*DASK_METRICS, *SENSORS}
    assert set(SERIES) - filled <= {activity.replace("-", "_") for activity in ACTIVITIES}
    assert filled < set(SERIES)
