"""How far each worker's embedding is from those of its peers, as a score that compares across clusters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.peers import MAD_TO_DEVIATION

#: How many peers a worker is compared with one by one; of more, so many are taken evenly.
MAX_PEERS = 256

#: The least spread of the distances that is assumed, in normalised units; less is noise of the embedding.
MIN_SPREAD = 0.01


def pairwise_scores(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """The paper's normal score: the sum of a worker's distances to all others, less their mean, over their SD.

    Parameters
    ----------
    embeddings
        Shape (workers, windows, length); NaN where a worker was absent.

    Returns
    -------
    array, shape (workers, windows)
        Dimensionless, at most sqrt(N - 1) for N workers; NaN where a worker was absent.

    References
    ----------
    Deng et al., NSDI 2025, section 4.4. We differ: of more than 256 workers, each is compared with 256 of them.
    """
    count = len(embeddings)
    peers = embeddings[np.unique(np.linspace(0, count - 1, min(count, MAX_PEERS)).astype(int))]
    sums = np.empty(embeddings.shape[:2], np.float32)
    for window in range(embeddings.shape[1]):
        mine, theirs = embeddings[:, window], peers[:, window]
        theirs = theirs[np.isfinite(theirs).all(axis=1)]
        squares = (mine**2).sum(axis=1)[:, None] + (theirs**2).sum(axis=1) - 2 * mine @ theirs.T
        sums[:, window] = np.sqrt(np.maximum(squares, 0)).sum(axis=1)
    return standardised(sums)


def standardised(sums: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sums less their mean over the workers, over their standard deviation; shape (workers, windows)."""
    known = np.isfinite(sums)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, sums, 0).sum(axis=0) / count
    spread = np.sqrt(np.where(known, (sums - mean) ** 2, 0).sum(axis=0) / count)
    return np.asarray((sums - mean) / np.maximum(spread, 1e-9), np.float32)


def robust_scores(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """A worker's distance from the median embedding, less the median distance, over their MAD.

    Parameters
    ----------
    embeddings
        Shape (workers, windows, length); NaN where a worker was absent.

    Returns
    -------
    array, shape (workers, windows)
        Dimensionless and not bounded by the number of workers; NaN where a worker was absent.

    Notes
    -----
    A worker hardly moves the median, so this works from 4 workers on, where :func:`pairwise_scores` can reach 1.7 at
    most.
    """
    distances = np.sqrt(((embeddings - _median(embeddings)) ** 2).sum(axis=2))
    beyond = distances - _median(distances)
    spread = MAD_TO_DEVIATION * _median(np.abs(beyond))
    return np.asarray(beyond / np.maximum(spread, MIN_SPREAD), np.float32)


def _median(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The median over the workers; np.nanmedian is many times slower where nothing is missing."""
    missing = np.isnan(values).reshape(len(values), -1)
    if not missing.any():
        return np.asarray(np.median(values, axis=0), np.float32)
    values = values[~missing.all(axis=1)]
    if not np.isnan(values).any():
        return np.asarray(np.median(values, axis=0), np.float32)
    return np.asarray(np.nanmedian(values, axis=0), np.float32)
