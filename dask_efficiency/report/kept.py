"""Last report of `dask-efficiency run`, which is kept for `dask-efficiency report` in the user's own folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from dask_efficiency.files.storage import writing
from dask_efficiency.report.files import load_report, to_dict
from dask_efficiency.report.model import EfficiencyReport


def kept_at() -> Path:
    """File of the last report: below ``XDG_STATE_HOME`` if set, else where the platform keeps a program's state.

    Raises
    ------
    FileNotFoundError
        If this user has no home.
    """
    if given := os.environ.get("XDG_STATE_HOME", ""):
        state = Path(given)
    elif sys.platform == "win32":
        state = Path(os.environ.get("LOCALAPPDATA", "") or _home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        state = _home() / "Library" / "Application Support"
    else:
        state = _home() / ".local" / "state"
    return state / "dask-efficiency" / "last-report.json"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise FileNotFoundError(f"no folder to keep a report in: {error}") from error


def keep(report: EfficiencyReport) -> None:
    """Keep a report in place of the one before; only its user may read it, as it has names and source code."""
    path = kept_at()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with writing(path) as file:
        if hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), 0o600)
        file.write(json.dumps(to_dict(report), allow_nan=False).encode("ascii"))


def load_kept() -> EfficiencyReport:
    """The report that is kept; FileNotFoundError if there is none."""
    path = kept_at()
    if not path.exists():
        where = f"`dask-efficiency run` keeps its last report in {path}, which is not there"
        raise FileNotFoundError(f"expected SOURCE, or --scheduler-file FILE: {where}")
    return load_report(path)
