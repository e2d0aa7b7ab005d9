"""The order in which metrics are tried: those first that best tell runs with a fault from runs without."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.fleet.outliers.metric_series import MetricSeries

#: Consecutive samples that make one example for the tree.
EXAMPLE_SAMPLES = 60

_TREE_DEPTH = 6


def prioritised(
    series: Sequence[MetricSeries], *, faulty: Sequence[Collection[str]], metrics: tuple[str, ...]
) -> tuple[str, ...]:
    """Metrics in the order of how much a decision tree uses their largest absolute z-score.

    Parameters
    ----------
    series
        Each of the comparable workers of a run.
    faulty
        For each series, the names of the workers at fault.
    metrics
        What to order.

    Returns
    -------
    tuple
        The same metrics. Without scikit-learn (the extra ``minder``), they are ordered by how well each one alone tells
        the faults; where no example has a fault, or all have, they keep their order.
    """
    examples = [
        (_features(part, metrics), not {*part.workers}.isdisjoint(names))
        for part, names in zip(series, faulty, strict=True)
    ]
    features = np.concatenate([rows for rows, _ in examples] or [np.empty((0, len(metrics)))])
    labels = np.concatenate([np.full(len(rows), label) for rows, label in examples] or [np.empty(0, bool)])
    if not labels.any() or labels.all():
        return metrics
    gains = _importances(features, labels)
    return tuple(metrics[j] for j in np.argsort(-gains, kind="stable"))


def _features(series: MetricSeries, metrics: tuple[str, ...]) -> NDArray[np.float64]:
    """By stretch of time and metric, the largest absolute z-score over the workers."""
    stretches = max(series.values.shape[2] // EXAMPLE_SAMPLES, 1)
    features = np.zeros((stretches, len(metrics)))
    for j, name in enumerate(metrics):
        if name in series.metrics:
            values = series.values[series.metrics.index(name)]
            for i, part in enumerate(np.array_split(values, stretches, axis=1)):
                features[i, j] = _largest_z(part)
    return features


def _largest_z(part: NDArray[np.float32]) -> float:
    known = np.isfinite(part)
    means = np.where(known, part, 0).sum(axis=1)[known.any(axis=1)] / known.sum(axis=1)[known.any(axis=1)]
    spread = means.std() if len(means) else 0.0
    return float(np.abs(means - means.mean()).max() / spread) if spread > 0 else 0.0


def _importances(features: NDArray[np.float64], labels: NDArray[np.bool_]) -> NDArray[np.float64]:
    try:
        from sklearn.tree import DecisionTreeClassifier
    except ImportError:
        return np.array([stump_gain(column, labels) for column in features.T])
    tree = DecisionTreeClassifier(max_depth=_TREE_DEPTH, class_weight="balanced", random_state=0)
    return np.asarray(tree.fit(features, labels).feature_importances_)


def stump_gain(column: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """How much the best single threshold on a feature lessens the Gini impurity of the labels, in [0, 0.5]."""
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
