"""What `python -m benchmarks.deployments` says of deployments that agree, that differ, and that cannot be started."""

from contextlib import nullcontext

import pytest

from benchmarks.deployments import __main__ as command
from benchmarks.deployments.__main__ import Deployment
from benchmarks.deployments.checks import at_least, between, equal
from benchmarks.deployments.programs import Need

ABSENT = Need("nothing-of-the-kind", module="nothing_of_the_kind")


@pytest.fixture
def examine(monkeypatch, capsys):
    """Examines a deployment; gives whether it counts as right, and what was printed."""
    # It would take the alarm from under the tests' own timeout.
    monkeypatch.setattr(command, "limit", lambda seconds: nullcontext())
    return lambda deployment: (command.examine("one", deployment, None), capsys.readouterr().out)


def test_a_deployment_whose_figures_agree_is_right(examine):
    checks = [equal("tasks", 3, 3), between("cpu", 1, 2, 1.5), at_least("failed", 1, 1)]
    right, output = examine(Deployment((), {"a cluster": lambda folder: checks}))
    assert right
    assert "all agree" in output


@pytest.mark.parametrize("wrong", [equal("tasks", 3, 2), between("cpu", 1, 2, 2.5), at_least("failed", 1, 0.5)])
def test_a_difference_is_shown(examine, wrong):
    right, output = examine(Deployment((), {"a cluster": lambda folder: [equal("workers", 2, 2), wrong]}))
    assert not right
    assert "1 of 2 differ" in output
    assert [line.split()[0] for line in output.splitlines() if line.endswith("NO")] == [wrong.what]


def test_a_cluster_that_does_not_start_is_wrong_and_the_next_one_is_tried(examine):
    def fails(folder):
        raise TimeoutError("no scheduler")

    right, output = examine(Deployment((), {"first": fails, "second": lambda folder: [equal("workers", 2, 2)]}))
    assert not right
    assert "did not come to an end" in output
    assert "all agree" in output


def test_a_deployment_without_its_program_is_skipped_and_the_install_command_is_named(examine):
    right, output = examine(Deployment((ABSENT,), {"a cluster": lambda folder: [equal("workers", 2, 1)]}))
    assert right
    assert "skipped" in output
    assert "pip install nothing-of-the-kind" in output
