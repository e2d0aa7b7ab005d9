"""A recorded run on another cluster, topology or placement."""
