"""CuptiMeter: kernels of this process, exact, from the activity records of CUDA's profiling interface."""

from dask_efficiency.adapters.cupti.meter import CuptiMeter, CuptiRefused

__all__ = ["CuptiMeter", "CuptiRefused"]
