"""Critical paths of PyTorch programs, from Kineto's traces."""
