"""Training of a detector: an autoencoder of each metric, with torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.fleet.minder.detector import WINDOW_SAMPLES, Minder, smooth
from dask_efficiency.fleet.minder.network import WINDOWS_AT_ONCE, Autoencoder, windowed
from dask_efficiency.fleet.outliers.metric_series import MetricSeries, metric_series_of
from dask_efficiency.show.progress import progress, until_stopped

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.runs.trace.run_trace import RunTrace


#: Sizes of the paper's network, which has one layer.
HIDDEN = 4
LATENTS = 8
#: Windows of a step, and learning rate of Adam; guesses that train in 800 steps.
_BATCH = 256
_RATE = 1e-2
#: Weight of the divergence of the latents from a normal distribution; the paper does not give its own. A guess.
_DIVERGENCE = 1e-4


def train_minder(runs: Sequence[MetricSeries | RunTrace | pd.DataFrame], *, steps: int = 800, seed: int = 0) -> Minder:
    """Learn how the metrics of a cluster behave.

    Parameters
    ----------
    runs
        Recorded runs; or tables with the columns ``at`` (seconds) and ``worker``, optionally ``group`` and ``host``,
        and one column for each metric. Faults in them do little harm while they are rare.
    steps
        Steps of the optimiser for each metric; each step takes 256 windows.
    seed
        For the initial weights and the choice of windows.

    Returns
    -------
    Minder
        Ctrl-C ends training early, with the metrics that were learnt by then.

    Raises
    ------
    ImportError
        If torch is not installed; the extra ``minder`` has it.
    ValueError
        If there is no run, or none long enough for a window.
    """
    parts = [part for run in runs for part in metric_series_of(run).comparable()]
    names = tuple(dict.fromkeys(name for part in parts for name in part.metrics))

    with progress("training", unit="metrics", of=len(names)) as report:

        def learn(number: int) -> Autoencoder | None:
            windows = _windows(parts, names[number], np.random.default_rng([seed, number]))
            if not len(windows):
                return None
            return fit(windows[:, :, None], steps=steps, seed=seed, report=lambda share: report(number + share))

        learnt = until_stopped(learn, range(len(names)), "metrics")
    models = {name: model for name, model in zip(names, learnt, strict=False) if model is not None}
    if not models:
        raise ValueError(f"{len(runs)} runs have no {WINDOW_SAMPLES} samples of any metric in a row; expected some")
    return Minder(models)


def _windows(parts: Sequence[MetricSeries], name: str, random: np.random.Generator) -> NDArray[np.float32]:
    """Windows of a metric, equally many of each run."""
    having = [part for part in parts if name in part.metrics]
    each = max(WINDOWS_AT_ONCE // max(len(having), 1), 1)
    chosen = []
    for part in having:
        rows = smooth(part, name)
        windows = windowed(rows[np.isfinite(rows).all(axis=1)], length=WINDOW_SAMPLES)
        count = windows.shape[0] * windows.shape[1]
        if count:
            picked = random.choice(count, min(each, count), replace=False)
            chosen.append(windows[picked // windows.shape[1], picked % windows.shape[1]])
    return np.concatenate(chosen) if chosen else np.empty((0, WINDOW_SAMPLES), np.float32)


def fit(
    windows: NDArray[np.float32], *, steps: int, seed: int, report: Callable[[float], object] = lambda share: None
) -> Autoencoder:
    """Train an autoencoder on windows of shape (windows, steps, channels)."""
    import torch

    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    try:
        torch.set_num_threads(1)  # more of them slow a network this small down
        torch.manual_seed(seed)
        network = _network(windows.shape[2])
        optimiser = torch.optim.Adam(network.parameters(), _RATE)
        data = torch.from_numpy(np.ascontiguousarray(windows, np.float32))
        for step in range(steps):
            report(step / steps)
            optimiser.zero_grad()
            _loss(network, data[torch.randint(len(data), (_BATCH,))]).backward()
            optimiser.step()
    finally:
        torch.random.set_rng_state(state)
        torch.set_num_threads(threads)
    return _weights(network)


def _network(channels: int) -> Any:
    from torch import nn

    parts = {
        "encoder": nn.LSTM(channels, HIDDEN, batch_first=True),
        "mean": nn.Linear(HIDDEN, LATENTS),
        "log_variance": nn.Linear(HIDDEN, LATENTS),
        "start": nn.Linear(LATENTS, HIDDEN),
        "decoder": nn.LSTM(HIDDEN, HIDDEN, batch_first=True),
        "output": nn.Linear(HIDDEN, channels),
    }
    return nn.ModuleDict(parts)


def _loss(network: Any, batch: Any) -> Any:
    """Squared error of the reconstruction, plus the divergence of the latents from a normal distribution."""
    import torch

    last = network["encoder"](batch)[1][0][0]
    mean, log_variance = network["mean"](last), network["log_variance"](last)
    latent = mean + torch.randn_like(mean) * torch.exp(log_variance / 2)
    error = torch.mean((decoded(network, latent, batch.shape[1]) - batch) ** 2)
    divergence = -0.5 * torch.mean(torch.sum(1 + log_variance - mean**2 - torch.exp(log_variance), dim=1))
    return error + _DIVERGENCE * divergence


def decoded(network: Any, latent: Any, steps: int) -> Any:
    """Windows from latents."""
    given = network["start"](latent).unsqueeze(1).expand(-1, steps, -1)
    return network["output"](network["decoder"](given)[0])


def _weights(network: Any) -> Autoencoder:
    """Weights of the trained network as arrays, which are used without torch."""

    def taken(tensor: Any) -> NDArray[np.float32]:
        return np.ascontiguousarray(tensor.detach().cpu().numpy().T, np.float32)

    def lstm(name: str) -> list[NDArray[np.float32]]:
        part = network[name]
        return [taken(part.weight_ih_l0), taken(part.weight_hh_l0), taken(part.bias_ih_l0 + part.bias_hh_l0)]

    def linear(name: str) -> list[NDArray[np.float32]]:
        return [taken(network[name].weight), taken(network[name].bias)]

    return Autoencoder(*lstm("encoder"), *linear("mean"), *linear("start"), *lstm("decoder"), *linear("output"))
