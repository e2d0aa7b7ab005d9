"""What is shown of predictions, sweeps and placements."""
