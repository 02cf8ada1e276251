"""What survives when processes are killed and disks fail? `make chaos` provokes it and checks the records."""
