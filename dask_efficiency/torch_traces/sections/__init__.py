"""What is shown of the critical path of a torch trace."""
