"""Exact accounts of thread-seconds, of a worker and of a cluster, and the messages between them."""
