"""Kineto's traces, as ``torch.profiler`` writes them, read into columns."""
