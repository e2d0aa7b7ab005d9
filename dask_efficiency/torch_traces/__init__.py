"""Traces of torch.profiler: their critical path, alone and inside Dask's tasks."""
