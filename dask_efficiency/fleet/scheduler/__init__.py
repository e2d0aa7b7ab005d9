"""What the scheduler remembers of its workers' metrics, and its watch for outliers."""
