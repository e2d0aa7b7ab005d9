"""Worker half: a meter on each worker."""
