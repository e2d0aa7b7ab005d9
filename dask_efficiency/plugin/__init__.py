"""Where the package meets a live cluster: worker, scheduler and client halves, and what wings add to them."""
