"""Deployments that need nothing to be installed have every task, thread and thread-second of known work."""

import pytest

from benchmarks.deployments import adaptive, programs, tls

# Up to seven processes start, which takes a busy machine a minute.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def different(checks):
    return {check.what: (check.expected, check.reported) for check in checks if not check.ok}


@pytest.mark.skipif(bool(programs.missing(tls.NEEDS)), reason="openssl is not installed: apt-get install openssl")
def test_a_cluster_under_tls_by_the_command_line_is_metered_by_a_preload(tmp_path):
    assert different(tls.run(tmp_path, preload=True)) == {}


def test_tasks_that_wait_for_the_first_workers_are_all_counted():
    assert different(adaptive.from_zero(waiting_seconds=0)) == {}
