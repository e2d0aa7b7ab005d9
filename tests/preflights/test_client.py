from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import dask_efficiency
from dask_efficiency.preflights.client import _retire
from dask_efficiency.preflights.judge.readings import Subject
from dask_efficiency.preflights.judge.result import PreflightResult


def retired(slow: int, workers: int, share: float = 0.25) -> tuple[list[str], PreflightResult]:
    """Who is retired of so many workers, of which the first so many do not answer, and the result."""
    asked: list[str] = []

    async def retire_workers(workers: list[str], **_: Any) -> dict[str, Any]:
        asked.extend(workers)
        return dict.fromkeys(workers)

    subjects = tuple(Subject(f"w{i}", f"w{i}", f"h{i}", broken="dead" if i < slow else "") for i in range(workers))
    client: Any = SimpleNamespace(scheduler=SimpleNamespace(retire_workers=retire_workers, address="inproc://here"))
    found = PreflightResult(subjects)
    assert len(found.slow) == slow
    return asked, asyncio.run(_retire(client, found, share))


@pytest.mark.parametrize(
    ("slow", "workers", "share", "count"),
    [
        (4, 8, 0.25, 2),
        (6, 7, 0.25, 1),
        (7, 7, 0.25, 1),
        (1, 4, 0.25, 1),
        (2, 3, 0.25, 1),
        (1, 2, 0.25, 0),
        (4, 8, 0.5, 4),
        (7, 8, 0.9, 6),
        (0, 8, 0.25, 0),
    ],
)
def test_no_more_are_retired_than_the_share_or_one_and_two_are_left(slow, workers, share, count) -> None:
    asked, found = retired(slow, workers, share)
    assert asked == list(found.retired) == list(found.slow[:count])
    assert found.kept == found.slow[count:]


def test_the_kept_are_named_with_the_reason() -> None:
    _, found = retired(4, 8)
    text = f"Kept, though slow: {', '.join(found.kept)}. Of 8 workers 2 may be retired: --retire-share allows more, and"
    assert f"{text} two always stay." in " ".join(str(found).split())
    assert found.to_dict()["kept"] == list(found.kept)


@pytest.mark.parametrize("share", [0, 1, 1.5, float("nan")])
def test_a_share_that_retires_no_worker_or_all_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"retire_share is .*; expected more than 0 and less than 1"):
        dask_efficiency.preflight(retire=True, retire_share=share)
