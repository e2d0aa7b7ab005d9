"""``benchmarks/scale.py`` runs at a small size, and what it measures is what its workers reported."""

import pytest

from benchmarks.scale import Size, run

WORKERS, SECONDS, TASKS = 12, 10.0, 240


def test_a_small_cluster_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"workers": WORKERS, "tasks": TASKS, "prefixes": 20, "seconds": SECONDS}
    size = Size([run(**asked, plugin=True, gpu=True)], [run(**asked, plugin=False, gpu=False)])
    (ours,), (others,) = size.runs, size.pairs
    # One heartbeat a second of each, and the first one soon.
    for each in (ours, others):
        assert each["finished"] == TASKS
        assert 9 * WORKERS <= each["heartbeats"] <= 11 * WORKERS
    assert ours["refused"] == ours["stale"] == 0
    covered = 4 * WORKERS * ours["elapsed"]
    assert 0.8 * covered < ours["recorded_seconds"] <= covered + 4 * WORKERS
    calls = {part: len(times) for part, times in ours["calls"].items()}
    assert calls["poll"] >= 2 * SECONDS - 2
    assert calls["poll: a snapshot"] >= 9 * WORKERS
    assert calls["hook: transition"] >= 3 * TASKS
    assert calls["/metrics: collect"] >= 1
    assert calls["pages: an update"] >= 4
    assert ours["own_cpu"] > 0
    assert ours["own_metrics_bytes"] > 0
    assert ours["report"]["close_cpu"] > ours["report"]["open_cpu"] > 0
    assert ours["report"]["reply_bytes"] > 1_000
    assert others["own_cpu"] == others["own_metrics_bytes"] == 0
    size.say()
    assert f"{WORKERS} workers with GPUs" in capsys.readouterr().out
    assert len(size.claims()) == 5
