"""The engine's process: reads a trace and a job, and writes what became of each seed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from functools import partial
from pathlib import Path


def _end_with_parent(folder: Path) -> None:
    """End this process when the one that began it is gone, which closes the standard input, and remove its files."""
    os.read(0, 1)  # a reader with a lock could not be left alone at the end
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    # Ctrl-C goes to all processes of a terminal; the one that began this ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before Dask is imported, which takes a second.
    threading.Thread(target=partial(_end_with_parent, Path(sys.argv[1])), daemon=True).start()

    from dask_efficiency.simulation.engine.process import simulate

    simulate(Path(sys.argv[1]), list(map(int, sys.argv[2:])))
