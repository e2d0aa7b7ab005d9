"""What other systems would say of a table of tasks: how far each worker stands out, by their own rules."""

from __future__ import annotations

import numpy as np
import pandas as pd


def _medians(frame: pd.DataFrame, took: pd.Series) -> pd.DataFrame:
    """Median seconds by worker and prefix."""
    return took.groupby([frame.worker, frame.prefix]).median().unstack()


def dlrover(frame: pd.DataFrame, took: pd.Series) -> pd.Series:
    """A worker's mean time over the median of all: DLRover's node check flags above 2."""
    table = _medians(frame, took)
    relative = (table / table.median()).mean(axis=1)
    return relative / relative.median()


def nvrx(frame: pd.DataFrame, took: pd.Series) -> pd.Series:
    """NVIDIA's resiliency extension: medians over the fastest worker's, weighted by time; it flags a score below 0.75.

    The inverse of the score, so that larger is worse, over the work that all workers did.
    """
    table = _medians(frame, took)
    common = table.dropna(axis=1)
    table = common if common.shape[1] else table
    score = table.min() / table
    weight = table.notna() * table.sum()
    return 1.0 / ((score * weight).sum(axis=1) / weight.sum(axis=1))


def mahalanobis(frame: pd.DataFrame, took: pd.Series) -> pd.Series:
    """Distance of a worker's mean times, CPU share and staging from the mean of all, with the covariance of all."""
    columns = {"took": took, "share": frame.cpu_seconds / took, "disk": frame.disk_seconds + frame.io_wait_seconds}
    features = []
    for values in columns.values():
        logs = np.log(values.clip(lower=1e-3))
        off = logs - logs.groupby(frame.prefix).transform("median")
        features.append(off.groupby(frame.worker).mean())
    table = pd.concat(features, axis=1)
    off = (table - table.mean()).to_numpy()
    inverse = np.linalg.pinv(np.cov(off.T) + 1e-6 * np.eye(off.shape[1]))
    return pd.Series(np.sqrt(np.einsum("ij,jk,ik->i", off, inverse, off)), table.index)


RIVALS = {"DLRover's rule": dlrover, "NVRx's score": nvrx, "Mahalanobis": mahalanobis}

#: Where they flag by themselves; there is no such number for a distance.
OWN_LIMITS = {"DLRover's rule": 2.0, "NVRx's score": 1 / 0.75}
