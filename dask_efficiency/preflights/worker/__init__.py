"""A preflight's steps on a worker."""
