"""The command `critical-path`."""
