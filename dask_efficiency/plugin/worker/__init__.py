"""The worker half: a meter on each worker, its ledger and its recorder."""
