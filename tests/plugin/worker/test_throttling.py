from __future__ import annotations

from dask_efficiency.plugin.worker.throttling import Throttling


def test_version_2_tells_microseconds(tmp_path):
    stat = tmp_path / "cpu.stat"
    stat.write_text("usage_usec 10\nnr_throttled 2\nthrottled_usec 5\n")
    throttling = Throttling(tmp_path)
    assert throttling.limited
    assert throttling.more() == 0
    stat.write_text("usage_usec 10\nnr_throttled 2\nthrottled_usec 12\n")
    assert throttling.more() == 7_000
    assert throttling.more() == 0
    throttling.close()
    throttling.close()
    assert not throttling.limited


def test_version_1_tells_nanoseconds(tmp_path):
    stat = tmp_path / "cpu.stat"
    stat.write_text("nr_periods 3\nthrottled_time 5\n")
    throttling = Throttling(tmp_path)
    stat.write_text("nr_periods 3\nthrottled_time 12\n")
    assert throttling.more() == 7
    throttling.close()


def test_without_a_limit_nothing_is_read(tmp_path):
    assert not Throttling(None).limited
    assert not Throttling(tmp_path).limited
    assert Throttling(None).more() == 0
