"""GPU time of tasks: what a meter saw on the devices is matched with tasks and added up exactly. Needs no CUDA."""
