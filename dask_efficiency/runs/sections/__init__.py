"""Documents of a critical path."""
