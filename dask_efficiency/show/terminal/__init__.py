"""A document in a terminal: plain ASCII for any screen, in colour where rich is installed."""
