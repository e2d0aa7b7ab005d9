from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from dask_efficiency.cli import main
from dask_efficiency.fleet import load_minder
from dask_efficiency.fleet.minder import train
from tests.fleet.minder.test_network import random_autoencoder


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is pressed while the second of three metrics is learnt."""
    monkeypatch.chdir(tmp_path)
    rows = {"at": np.repeat(np.arange(60.0), 4), "worker": np.tile(list("abcd"), 60)}
    noise = np.random.default_rng(0)
    pd.DataFrame({**rows, **{name: noise.random(240) for name in ("cpu", "net", "disk")}}).to_csv(
        "all-well.csv", index=False
    )
    learnt = []

    def fit(windows: Any, *, steps: int, seed: int, report: Any) -> Any:
        report(0.5)
        if learnt:
            raise KeyboardInterrupt
        learnt.append(windows)
        return random_autoencoder(seed=1)

    monkeypatch.setattr(train, "fit", fit)


def trained() -> Result:
    return CliRunner().invoke(main, ["fleet", "train", "all-well.csv", "--save", "minder.npz"])


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_keeps_the_metrics_that_were_learnt() -> None:
    result = trained()
    assert result.exit_code == 130
    assert result.stderr == "Ctrl-C: stopped after 1 of 3 metrics\n"
    assert result.stdout == "minder.npz: cpu, of 1 runs or windows.\n"
    assert load_minder("minder.npz").metrics == ("cpu",)


@pytest.mark.usefixtures("interrupted")
def test_half_a_detector_does_not_replace_a_whole_one() -> None:
    Path("minder.npz").write_bytes(b"the old one")
    result = trained()
    assert result.exit_code == 130
    assert "minder.npz stays as it was; of the new detector only cpu was learnt" in result.stderr
    assert Path("minder.npz").read_bytes() == b"the old one"
