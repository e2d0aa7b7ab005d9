"""CuptiMeter: kernels of this process, measured exactly by CUPTI, CUDA's profiling interface."""

from dask_efficiency.gpu.cupti.meter import CuptiMeter

__all__ = ["CuptiMeter"]
