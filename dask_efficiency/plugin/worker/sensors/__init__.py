"""What the host of a worker says of its cores, memory, disks and network, once a second at most."""
