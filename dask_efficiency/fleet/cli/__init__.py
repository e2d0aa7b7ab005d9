"""The commands `fleet watch` and `fleet train`."""
