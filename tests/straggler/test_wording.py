from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.straggler.wording import MEANINGS, describe


def test_every_cause_has_words():
    assert MEANINGS.keys() == set(Cause)


def test_a_finding_is_one_bounded_sentence():
    finding = SlowWorker("w" * 10_000, "h" * 10_000, Cause.GIL, 2.0, 0.9, 0.0, 1.52)
    assert "1.5 times as long as its peers" in describe(finding)
    assert len(describe(finding)) < 1_000


def test_how_much_longer_is_not_said_where_it_is_not_known():
    assert "takes longer for the same work" in describe(SlowWorker("w", "", Cause.DISK, 2.0, 0.9, 0.0, None))


def test_the_line_on_which_its_tasks_wait_is_said_where_it_is_known():
    slow = SlowWorker("w", "", Cause.SLEEP, 2.0, 0.9, 0.0, 2.0, line="etl.py:88")
    assert "(sleep: its tasks sleep longer, in etl.py:88); look at what sleeps" in describe(slow)


def test_a_host_is_told_from_a_worker():
    assert describe(SlowWorker("", "h", Cause.DISK, 2.0, 0.9, 0.0, 2.0)).startswith("all workers on host 'h'")
