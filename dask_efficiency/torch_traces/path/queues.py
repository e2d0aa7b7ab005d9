"""How much work each stream of a GPU has been asked for and has not begun, over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Column, Int32, Int64, Table
from dask_efficiency.torch_traces.kineto.trace import RankTrace


@dataclass(frozen=True, slots=True, repr=False)
class QueueLengths(Table):
    """A row for each change, by device, stream and time; a length holds until the stream's next row."""

    #: On the rank's clock.
    at: Annotated[Int64, Column(unit="nanoseconds")]
    device: Int32
    stream: Int32
    length: Int32


def queue_lengths(trace: RankTrace) -> QueueLengths:
    """How much work each stream had been asked for and had not begun.

    Returns
    -------
    QueueLengths
        A row where work is asked for (its call begins), and one where work begins; at the same time the former is
        first. All kernels of a CUDA graph are asked for by its one call.

    References
    ----------
    HTA (``traceinsight`` 0.6.1), ``get_queue_length_time_series``. We differ: streams of different devices are apart,
    and all calls that asked for work count, not only those of some names.
    """
    events = trace.events
    rows = np.flatnonzero(events.is_gpu_work & (events.call != MISSING))
    at = np.concatenate([events.start[events.call[rows]], events.start[rows]])
    change = np.repeat(np.array([1, -1], np.int32), len(rows))
    device, stream = np.tile(events.device[rows], 2), np.tile(events.stream[rows], 2)
    order = np.lexsort((-change, at, stream, device))
    at, change, device, stream = at[order], change[order], device[order], stream[order]
    first = np.flatnonzero((np.diff(device, prepend=-2) != 0) | (np.diff(stream, prepend=-2) != 0))
    length = np.cumsum(change, dtype=np.int64)
    length -= np.repeat((length - change)[first], np.diff(np.append(first, len(change))))
    return QueueLengths(at, device, stream, length.astype(np.int32))
