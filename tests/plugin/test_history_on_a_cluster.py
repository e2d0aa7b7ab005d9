"""Reports of the past have what the heartbeats and the scheduler knew by then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client

from dask_efficiency import EfficiencyPlugin
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.replies import ask_history
from dask_efficiency.show.terminal import plain
from tests.plugin.pretended_gpu import pretend_gpu
from tests.plugin.tasks import increment
from tests.plugin.watch import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(new_cluster: Any) -> Iterator[Client]:
    with new_cluster(n_workers=2, threads_per_worker=1) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin(history_interval="200ms"))
        yield client


def test_a_report_of_the_past_has_gpus_the_event_loop_and_what_others_used(client: Client) -> None:
    client.run(pretend_gpu)

    def past() -> EfficiencyReport | None:
        client.gather(client.map(increment, range(4), pure=False))
        found: EfficiencyReport = client.sync(ask_history, client, 0.5)
        known = found.others_share is not None and len(found.gpu) == 2
        return found if known and found.window_seconds < 100 and found.scheduler_loop is not None else None

    report = eventually(past)
    for gpu in report.gpu.values():
        (device,) = gpu.devices
        assert (gpu.meter, gpu.kernels) == ("cupti", ())
        assert device.kernels == gpu.kernel_ns > 0
        assert device.kernels + device.copies + device.idle == device.elapsed
        assert set(device.shares) == {"spin"}
    assert 0 <= report.others_share <= 1
    assert report.timeline.elapsed_ns == pytest.approx(report.window_seconds * 1e9)
    assert any(map(any, report.timeline.activity.values()))
    loop = report.scheduler_loop
    assert 0 < loop.seconds < client.sync(ask_history, client, None).scheduler_loop.seconds
    assert all(part.seconds > 0 and part.calls > 0 for part in loop.handlers)
    assert loop.handlers
    assert report.worker_saturation == client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.WORKER_SATURATION)
    (note,) = [note for note in report.notes if note.startswith("made in retrospect")]
    assert "lines, spans, names of kernels" in note
    shown = plain(report.document)
    assert "Scheduler's event loop" in shown
    assert "GPU" in shown
