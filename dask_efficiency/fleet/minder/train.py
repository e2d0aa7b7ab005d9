"""Training of a detector: its autoencoders with torch, and the order of its metrics with scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.fleet.minder.detector import WINDOW_SAMPLES, Minder, smooth
from dask_efficiency.fleet.minder.network import Autoencoder, windowed
from dask_efficiency.fleet.outliers.metric_series import MetricSeries, metric_series_of
from dask_efficiency.show.progress import progress, until_stopped

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.runs.trace.run_trace import RunTrace


#: Sizes of the paper's network, which has one layer.
HIDDEN = 4
LATENTS = 8
#: Most windows of each metric that are learnt from; more change little.
_MAX_WINDOWS = 16_384
#: Windows of a step, and learning rate of Adam; guesses that train in 800 steps.
_BATCH = 256
_RATE = 1e-2
#: Weight of the divergence of the latents from a normal distribution; the paper does not give its own.
_DIVERGENCE = 1e-4


def train_minder(
    runs: Sequence[MetricSeries | RunTrace | pd.DataFrame],
    faulty: Sequence[Collection[str]] | None = None,
    *,
    steps: int = 800,
    seed: int = 0,
) -> Minder:
    """Learn how the metrics of a cluster behave, and which of them show faults best.

    Parameters
    ----------
    runs
        Recorded runs; or tables with the columns ``at`` (seconds) and ``worker``, optionally ``group`` and ``host``,
        and one column for each metric. Faults in them do little harm while they are rare.
    faulty
        For each run, the names of the workers that were at fault, from which the order of the metrics is learnt.
        Without it the metrics keep the order in which they come.
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
    series = [metric_series_of(run).comparable() for run in runs]
    parts = [part for of_run in series for part in of_run]
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
    order = tuple(models)
    if faulty:
        if len(faulty) != len(series):
            raise ValueError(f"faulty names the workers of {len(faulty)} runs; expected those of {len(series)}")
        by_part = [workers for of_run, workers in zip(series, faulty, strict=True) for _ in of_run]
        order = prioritised(parts, faulty=by_part, metrics=order)
    return Minder({name: models[name] for name in order})


def _windows(parts: Sequence[MetricSeries], name: str, random: np.random.Generator) -> NDArray[np.float32]:
    """Windows of a metric, equally many of each run."""
    having = [part for part in parts if name in part.metrics]
    each = max(_MAX_WINDOWS // max(len(having), 1), 1)
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


#: Consecutive samples that make one example for the tree; a guess.
EXAMPLE_SAMPLES = 60
#: Depth of the decision tree; a guess.
_TREE_DEPTH = 6


def prioritised(
    series: Sequence[MetricSeries], *, faulty: Sequence[Collection[str]], metrics: tuple[str, ...]
) -> tuple[str, ...]:
    """Order metrics by how much a decision tree uses their largest absolute z-score: the best at telling faults first.

    Without scikit-learn (the extra ``minder``), by how well each one alone tells the faults. Where no example has a
    fault, or all have, they keep their order.
    """
    has_fault = [not {*part.workers}.isdisjoint(names) for part, names in zip(series, faulty, strict=True)]
    rows = [_features(part, metrics) for part in series]
    labels = np.repeat(has_fault, [len(each) for each in rows])
    if not labels.any() or labels.all():
        return metrics
    gains = _importances(np.concatenate(rows), labels)
    return tuple(metrics[j] for j in np.argsort(-gains, kind="stable"))


def _features(series: MetricSeries, metrics: tuple[str, ...]) -> NDArray[np.float64]:
    """Largest absolute z-score over the workers, by stretch of time and metric."""
    stretches = max(series.values.shape[2] // EXAMPLE_SAMPLES, 1)
    features = np.zeros((stretches, len(metrics)))
    for j, name in enumerate(metrics):
        if name not in series.metrics:
            continue
        values = series.values[series.metrics.index(name)]
        for i, part in enumerate(np.array_split(values, stretches, axis=1)):
            known = np.isfinite(part)
            means = np.where(known, part, 0).sum(axis=1)[known.any(axis=1)] / known.sum(axis=1)[known.any(axis=1)]
            spread = means.std() if len(means) else 0.0
            features[i, j] = np.abs(means - means.mean()).max() / spread if spread > 0 else 0.0
    return features


def _importances(features: NDArray[np.float64], labels: NDArray[np.bool_]) -> NDArray[np.float64]:
    try:
        from sklearn.tree import DecisionTreeClassifier
    except ImportError:
        return np.array([stump_gain(column, labels) for column in features.T])
    tree = DecisionTreeClassifier(max_depth=_TREE_DEPTH, class_weight="balanced", random_state=0)
    return np.asarray(tree.fit(features, labels).feature_importances_)


def stump_gain(column: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """Decrease of the labels' Gini impurity by the best single threshold on a feature, in [0, 0.5]."""
    order = np.argsort(column, kind="stable")
    ordered, hits = column[order], np.cumsum(labels[order])
    count = len(labels)
    left = np.arange(1, count)
    right = count - left
    share_left = hits[:-1] / left
    share_right = (hits[-1] - hits[:-1]) / right
    impurity = (left * share_left * (1 - share_left) + right * share_right * (1 - share_right)) * 2 / count
    impurity = impurity[ordered[1:] > ordered[:-1]]
    share = labels.mean()
    return float(2 * share * (1 - share) - impurity.min()) if len(impurity) else 0.0
