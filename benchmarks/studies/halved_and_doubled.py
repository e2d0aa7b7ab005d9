"""Constants that were chosen on data, halved and doubled: one that changes no figure of that data is not needed.

``python -m benchmarks.studies.halved_and_doubled [MODULE ...]`` prints, for each numeric constant of a module, the
figures of the data that its rules were chosen on, with half and with twice of it, where they are others. Those of
detectors of slow workers are ``benchmarks.who_is_slow``'s on tuning seeds, and take some minutes a module.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np

from benchmarks import history, time_left, who_is_slow
from benchmarks.studies.constants import changed
from dask_efficiency import load_trace
from docs.constants import PACKAGE, constants_of

DATA = PACKAGE.parent / "tests" / "data"
#: Simulated histories of each kind.
HISTORIES = 60

Figures = dict[str, int | float | str]


@cache
def recorded_runs() -> list[tuple[str, time_left.Run]]:
    paths = sorted((*DATA.glob("diagnoses/*.trace"), *DATA.glob("simulation/*.trace")))
    return [(path.stem, run) for path in paths for run in time_left.of_trace(load_trace(path))]


def of_time_left() -> Figures:
    """Looks at recorded runs: how often something was shown, and was right."""
    found = time_left.report(recorded_runs())
    return {"looks": found.looks, "shown": found.shown, "right": found.right}


def of_histories() -> Figures:
    """Simulated histories: told without a change, failed without one, and planted rises told at their run."""
    rng, found = np.random.default_rng(61), {"told": 0, "failed": 0}
    for kind in history.KINDS:
        told, worse = history.without_a_change(rng, kind, HISTORIES)
        found = {"told": found["told"] + told, "failed": found["failed"] + worse}
    return found | {f"{rise:.0%}": history.with_a_change(rng, rise, HISTORIES) for rise in (0.1, 0.2, 0.31)}


def of_slow_workers(part: str) -> Figures:
    """Who is slow, on tuning seeds."""
    data = Path(os.environ.get("STRAGGLER_DATA", "../shared/data"))
    found = who_is_slow.PARTS[part](data, True)
    return {figure.name: figure.value for figure in found if "CPU seconds" not in figure.name}


#: Modules of detectors of slow workers, by the part of ``who_is_slow`` that judges them.
DETECTORS = {
    "tasks": ("straggler.score", "straggler.observations", "straggler.disk"),
    "heartbeats": ("straggler.live_score", "straggler.prefixes", "straggler.processes", "straggler.transfers"),
    "metrics": ("fleet.outliers.block_signals", "fleet.outliers.departures", "fleet.outliers.outliers"),
    "measurements": ("preflights.judge.alone", "preflights.judge.links", "preflights.judge.readings"),
}

JUDGED: dict[str, Callable[[], Figures]] = {
    **{name: partial(of_slow_workers, part) for part, names in DETECTORS.items() for name in names},
    "accounts.cluster.time_left": of_time_left,
    "histories.change_points": of_histories,
    "histories.history": of_histories,
}


def figures(judge: Callable[[], Figures]) -> Figures:
    with contextlib.redirect_stdout(io.StringIO()):
        return judge()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", default=[*JUDGED], help=", ".join(JUDGED))
    for name in parser.parse_args().modules:
        module, judge = importlib.import_module(f"dask_efficiency.{name}"), JUDGED[name]
        usual = figures(judge)
        print(f"{name}: {usual}", flush=True)
        source = (PACKAGE / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
        for constant in constants_of(source, name):
            value, said = getattr(module, constant.name), []
            loaded = [one for name, one in sys.modules.items() if name.startswith("dask_efficiency")]
            holders = [one for one in loaded if vars(one).get(constant.name) is value]
            for factor in (0.5, 2.0):
                for holder in holders:
                    setattr(holder, constant.name, changed(value, factor))
                try:
                    found = figures(judge)
                except Exception as error:  # one that rules do without is no answer
                    said.append(f"{factor:g} times: {type(error).__name__}: {error}")
                    continue
                finally:
                    for holder in holders:
                        setattr(holder, constant.name, value)
                others = {what: number for what, number in found.items() if number != usual[what]}
                said += [f"{factor:g} times: {others}"] if others else []
            print(f"  {constant.name} = {constant.value}: {'; '.join(said) or 'nothing changes'}", flush=True)


if __name__ == "__main__":
    main()
