"""Documents of predictions, sweeps, placements and ladders."""
