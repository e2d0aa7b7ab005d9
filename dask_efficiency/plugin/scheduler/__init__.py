"""The scheduler half: the plugin, the meter of the cluster, and the recorder of its transitions."""
