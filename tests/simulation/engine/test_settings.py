from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency import load_trace
from dask_efficiency.runs.trace.settings import SETTINGS
from dask_efficiency.simulation.engine.launch import simulate_jobs
from dask_efficiency.simulation.engine.settings import SettingError, check_settings, simulated_settings
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import SeededJob, SimulationJob

TRACE = Path(__file__).parents[2] / "data" / "diagnoses" / "chain.trace"
#: Settings that are always set, as they name code.
NAMING_CODE = {f"distributed.scheduler.{name}": [] for name in ("preload", "preload-argv", "http.routes")}
NAMING_CODE["distributed.scheduler.active-memory-manager.policies"] = [
    {"class": "distributed.active_memory_manager.ReduceReplicas"}
]


def names(schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Every key of a schema, those with keys of their own included."""
    for name, described in schema.get("properties", {}).items():
        yield f"{above}{name}"
        yield from names(described, f"{above}{name}.")


def keys() -> list[str]:
    """Every key of the schemas of Dask's and distributed's configuration."""
    files = [Path(package.__path__[0], f"{package.__name__}-schema.yaml") for package in (dask, distributed)]
    found = [name for file in files for name in names(yaml.safe_load(file.read_text()))]
    assert len(found) > 200
    assert set(NAMING_CODE) <= {*found}
    return found


SCHEDULER, WORKER = "distributed.scheduler.", "distributed.worker.memory."


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (SCHEDULER + "work-staeling", False, f"did you mean {SCHEDULER}work-stealing?"),
        (7, 1, f"a simulation takes no setting 7; it takes {SCHEDULER}allowed-failures, "),
        (SCHEDULER + "preload", ["import os"], f"a simulation takes no setting '{SCHEDULER}preload'"),
        ("distributed.worker.memory", {"target": 0.5}, "takes no setting 'distributed.worker.memory'"),
        (SCHEDULER + "worker-saturation", "abc", "is 'abc'; expected a number of 0 or more, or False"),
        (SCHEDULER + "worker-saturation", -1, "is -1; expected a number"),
        (SCHEDULER + "worker-saturation", True, "is True; expected a number"),
        (SCHEDULER + "worker-saturation", [1], "is [1]; expected a number"),
        (SCHEDULER + "work-stealing", "abc", "is 'abc'; expected True or False"),
        (SCHEDULER + "unknown-task-duration", "soon", "is 'soon'; expected a time such as '500ms'"),
        (WORKER + "max-spill", "much", "is 'much'; expected a size such as '10MB', or False"),
        (SCHEDULER + "default-task-durations", {"sum": "soon"}, "expected a time by prefix"),
        (SCHEDULER + "default-task-durations", ["1s"], "expected a time by prefix"),
    ],
)
def test_a_setting_that_changes_no_schedule_or_a_value_that_dask_cannot_use_is_refused(
    name: Any, value: Any, message: str
) -> None:
    with pytest.raises(SettingError) as refused:
        check_settings({name: value})
    assert message in str(refused.value)


def test_dasks_defaults_and_all_forms_of_values_are_taken() -> None:
    defaults = dask.config.merge(*dask.config.defaults)
    check_settings({name: dask.config.get(name, config=defaults) for name in SETTINGS})
    for name, value in (
        (SCHEDULER + "worker-saturation", float("inf")),
        (SCHEDULER + "worker-saturation", "inf"),
        (WORKER + "target", False),
        (SCHEDULER + "bandwidth", "10MB"),
        (SCHEDULER + "unknown-task-duration", 2),
        (SCHEDULER + "work-stealing-interval", "100ms"),
        (WORKER + "max-spill", "10GB"),
        (SCHEDULER + "default-task-durations", {"sum": "1us", "mean": 2}),
    ):
        check_settings({name: value})


def test_changed_settings_win_over_measured_ones_and_these_over_configured_ones() -> None:
    name = "distributed.scheduler.bandwidth"
    assert simulated_settings({name: 1}, {})[name] == 1
    assert simulated_settings({name: 1, "bandwidth": 2.0}, {})[name] == 2.0
    assert simulated_settings({name: 1, "bandwidth": 2.0}, {name: 3})[name] == 3


CODE = st.sampled_from(["import os", "/tmp/preload.py", "https://host/preload.py", "os.system", "canary"])
VALUES = st.recursive(
    CODE | st.none() | st.booleans() | st.floats(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["class", "preload"]), inner),
    max_leaves=4,
)
CONFIGURATIONS = st.dictionaries(st.sampled_from(keys()) | st.text(max_size=5), VALUES, max_size=8)


@given(CONFIGURATIONS, CONFIGURATIONS)
def test_a_configuration_only_has_settings_that_change_a_schedule_and_names_no_code(
    recorded: dict[str, Any], changed: dict[str, Any]
) -> None:
    with suppress(SettingError):
        found = simulated_settings(recorded, changed)
        assert {name: found.pop(name) for name in NAMING_CODE} == NAMING_CODE
        assert found.keys() <= SETTINGS.keys() & (
            recorded.keys() | changed.keys() | {"distributed.scheduler.bandwidth"}
        )


@pytest.mark.parametrize("form", ["module", "text", "file", "class"])
def test_no_key_of_a_traces_configuration_runs_code(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')\nclass Policy:\n    pass\n"
    (tmp_path / "canary.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    forms = {"module": "canary", "text": code, "file": str(tmp_path / "canary.py"), "class": {"class": "canary.Policy"}}
    canary = [forms[form]]
    config = dict.fromkeys(set(keys()) - SETTINGS.keys(), canary)
    trace = replace(load_trace(TRACE), config=config)
    (runs,) = simulate_jobs(trace, [SeededJob(SimulationJob(ClusterSpec.from_trace(trace)), [0])])
    assert runs.median > 0
    assert not ran.exists()
