"""Memory of the workers' metrics on the scheduler, and its watch for outliers."""
