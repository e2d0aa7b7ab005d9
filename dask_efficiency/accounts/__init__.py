"""Where each thread-second goes: exact sums of a worker and of a cluster, and what travels between them."""
