"""Plugin on a live cluster: worker, scheduler and client halves, with parts of the wings."""
