"""The critical path inside PyTorch programs, from Kineto's traces."""
