"""A worker's ledger: slots, tasks and why its threads wait."""
