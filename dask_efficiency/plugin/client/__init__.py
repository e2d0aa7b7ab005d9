"""The client half: the context manager around ``compute()``, and what a client asks of a scheduler."""
