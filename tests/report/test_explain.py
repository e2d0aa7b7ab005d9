from __future__ import annotations

import pytest
from click.testing import CliRunner

from dask_efficiency.accounts.buckets import FINALIZED
from dask_efficiency.accounts.causes import NAMES
from dask_efficiency.cli import main
from dask_efficiency.report.explain import explain
from dask_efficiency.report.kinds import BESIDE


@pytest.mark.parametrize("kind", [*FINALIZED, *NAMES, *BESIDE, "slow-worker"])
def test_every_bucket_every_cause_and_what_is_beside_them_is_explained(kind: str) -> None:
    said = explain(kind)
    assert said.splitlines()[0].strip("# ") == f"`{kind}`"
    assert len(said.splitlines()) > 2
    assert ")=" not in said


def test_a_cause_alone_is_enough_where_one_bucket_has_it() -> None:
    assert explain("sleep") == explain("thread-noncpu/sleep")
    assert "`thread-noncpu/file`" not in explain("sleep")
    with pytest.raises(ValueError, match="'unknown' is several kinds; expected one of thread-noncpu/unknown, "):
        explain("unknown")


def test_the_command_prints_it_and_what_there_is_where_there_is_none() -> None:
    result = CliRunner().invoke(main, ["explain", "spill"])
    assert (result.exit_code, result.stdout) == (0, f"{explain('spill')}\n")
    result = CliRunner().invoke(main, ["explain", "spil"])
    assert result.exit_code != 0
    assert "'spil' is no kind; expected one of cancelled, client, constrained," in result.output
