"""Critical paths: what every second of a run was spent on, and what would make it shorter."""
