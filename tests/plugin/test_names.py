from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import dask_efficiency.plugin
from dask_efficiency.plugin import names
from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.plugin.names import RECOMPUTED
from dask_efficiency.plugin.scheduler.plugin import EfficiencyPlugin

#: The names by which halves of the same version know one another: a changed one parts them.
WIRE = {
    "PLUGIN": "dask-efficiency",
    "WORKER_PLUGIN": "dask-efficiency-worker",
    "METRIC": "efficiency",
    "OP": "efficiency",
    "FINAL_SNAPSHOT": "dask-efficiency-last-words",
    "BATCHES": "dask-efficiency-trace",
    "STRAGGLERS_TOPIC": "dask-efficiency",
}


def strings(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_names_on_the_wire_never_change():
    assert {name: getattr(names, name) for name in WIRE} == WIRE
    assert RECOMPUTED == "dask-efficiency-recomputed"


def test_the_bootstrap_repeats_the_names_alike():
    assert EfficiencyWorkerPlugin.name == names.WORKER_PLUGIN
    assert EfficiencyPlugin.name == names.PLUGIN
    (folder,) = dask_efficiency.plugin.__path__
    assert names.METRIC in strings(Path(folder) / "bootstrap.py")


def test_names_are_spelled_only_in_their_module_and_the_bootstrap():
    (folder,) = dask_efficiency.plugin.__path__
    # The package's own name among the versions of a report is no name of an op.
    spelled = set(WIRE.values()) - {names.PLUGIN}
    found = {path.name for path in Path(folder).rglob("*.py") if strings(path) & spelled}
    assert found == {"names.py", "bootstrap.py"}


def test_names_import_only_the_standard_library():
    script = f"""
import sys
before = set(sys.modules)
exec(open({names.__file__!r}).read())
print(sorted(name for name in set(sys.modules) - before if name.partition(".")[0] not in sys.stdlib_module_names))
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
