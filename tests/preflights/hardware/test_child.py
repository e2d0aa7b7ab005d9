from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest

from dask_efficiency.files.processes import command
from dask_efficiency.preflights.hardware import host
from dask_efficiency.preflights.hardware.host import CannotMeasure, best_rate, least_seconds, python_loops, writes

COMMAND = command("dask_efficiency.preflights.hardware.child")


def started(request: dict[str, Any], payload: bytes = b"") -> subprocess.Popen[bytes]:
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps({"nbytes": len(payload), **request}).encode() + b"\n" + payload)
    process.stdin.flush()
    return process


def test_each_component_has_its_measurement_or_the_reason(tmp_path: Path) -> None:
    request = {
        "components": ["cpu", "cpu_all", "memory_bandwidth", "disk", "workload", "unknown"],
        "threads": 2,
        "memory": 2**26,
        "directory": str(tmp_path / "nowhere"),
        "repetition": 0.001,
        "repeats": 3,
        "workload": host.SCRIPT,
    }
    process = started(request, b"print('printed'); 1 / 0")
    assert process.stdout is not None
    lines = [json.loads(line) for line in process.stdout]
    assert process.wait() == 0
    *answers, last = lines
    assert [line["component"] for line in answers] == request["components"]
    assert all(line["value"] > 0 and line["count"] == 3 for line in answers[:3])
    assert answers[3]["missing"].startswith("cannot write to")
    assert answers[4]["failed"] == "ZeroDivisionError: division by zero"
    assert "failed" in answers[5]
    assert last["cpu_seconds"] > 0


def test_a_child_ends_with_its_input_and_so_do_its_own_children() -> None:
    script = b"import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(1000)'])"
    process = started({"components": ["workload"], "repeats": 1, "workload": host.SCRIPT}, script)
    until = time.monotonic() + 100
    while not (children := psutil.Process(process.pid).children()):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(100)
    gone, alive = psutil.wait_procs(children, 100)
    assert gone
    assert not alive


def test_nothing_is_left_where_it_writes_and_a_directory_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    assert writes(str(tmp_path), 0.001)["value"] > 0
    assert not list(tmp_path.iterdir())
    with pytest.raises(CannotMeasure, match="cannot write to .*: No such file or directory"):
        writes(str(tmp_path / "nowhere"), 0.001)


@pytest.mark.parametrize("code", [b"x = 1", b"import sys; sys.exit()", b"import sys; sys.exit(0)"])
def test_a_script_may_end_as_scripts_do_and_fails_with_an_error(code: bytes) -> None:
    assert host.run(host.SCRIPT, code)["count"] == 3
    with pytest.raises(SystemExit):
        host.run(host.SCRIPT, b"import sys; sys.exit('no')")


def test_a_function_is_timed() -> None:
    assert host.run(host.CALLABLE, cloudpickle.dumps(lambda: None))["value"] >= 0


def test_loops_report_the_share_of_time_they_computed() -> None:
    spent: list[float] = []
    found = python_loops(0.002, repeats=2, spent=spent.append)
    assert found["value"] > 0
    assert 0 < found["share"] <= 1.1
    assert spent == sorted(spent)


def test_the_best_repetition_counts() -> None:
    rates = iter([(2.0, 0.5), (4.0, 1.0), (1.0, 0.2)])
    assert best_rate(lambda: next(rates)) == {"value": 4.0, "share": 1.0, "count": 3}
    seconds = iter([2.0, 1.0, 3.0])
    assert least_seconds(lambda: next(seconds)) == {"value": 1.0, "count": 3}
