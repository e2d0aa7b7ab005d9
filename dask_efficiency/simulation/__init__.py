"""A recorded run on another cluster, topology or placement."""

from typing import TYPE_CHECKING

from dask_efficiency.plugin.wings import public

if TYPE_CHECKING:
    from dask_efficiency.simulation.model.advice import Advice
    from dask_efficiency.simulation.model.ladder import IdealLadder
    from dask_efficiency.simulation.model.placements import Placements
    from dask_efficiency.simulation.model.requirements import SimulationRefusedError
    from dask_efficiency.simulation.model.result import Prediction, SimulationWarning
    from dask_efficiency.simulation.model.sweeps import Sweep

__all__ = ["Advice", "IdealLadder", "Placements", "Prediction", "SimulationRefusedError", "SimulationWarning", "Sweep"]

__getattr__, __dir__ = public(
    __name__,
    {
        "Advice": "model.advice",
        "IdealLadder": "model.ladder",
        "Placements": "model.placements",
        "Prediction": "model.result",
        "SimulationRefusedError": "model.requirements",
        "SimulationWarning": "model.result",
        "Sweep": "model.sweeps",
    },
)
