"""The efficiency report: what a window's accounts mean, compared, and shown."""
