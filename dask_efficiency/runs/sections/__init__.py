"""What is shown of a critical path."""
