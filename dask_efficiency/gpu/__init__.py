"""GPU time of tasks: operations on the devices are matched with tasks and added up exactly. Needs no CUDA."""
