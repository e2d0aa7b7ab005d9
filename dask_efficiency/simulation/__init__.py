"""A recorded run on another cluster, topology or placement."""

from typing import TYPE_CHECKING

from dask_efficiency.plugin.wings import public

if TYPE_CHECKING:
    from dask_efficiency.simulation.model.accuracy import SimulationRefusedError, SimulationWarning
    from dask_efficiency.simulation.results import IdealLadder, Placements, Prediction, Sweep

__all__ = [
    "IdealLadder",
    "Placements",
    "Prediction",
    "SimulationRefusedError",
    "SimulationWarning",
    "Sweep",
]

__getattr__, __dir__ = public(
    __name__,
    {
        "IdealLadder": "results",
        "Placements": "results",
        "Prediction": "results",
        "SimulationRefusedError": "model.accuracy",
        "SimulationWarning": "model.accuracy",
        "Sweep": "results",
    },
)
