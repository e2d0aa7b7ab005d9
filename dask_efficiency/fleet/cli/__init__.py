"""The commands `watch` and `train-minder`."""
