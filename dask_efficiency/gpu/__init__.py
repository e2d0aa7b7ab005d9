"""GPU time of tasks: what a meter saw on the device, joined to tasks and added up exactly; no CUDA in here."""
