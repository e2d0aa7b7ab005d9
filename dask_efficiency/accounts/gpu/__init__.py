"""What is summed up of GPUs, and how it travels."""
