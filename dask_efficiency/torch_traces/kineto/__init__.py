"""Traces of GPU programs that ``torch.profiler`` wrote (Kineto), read into columns."""
