"""DistributedDataParallel, run for real: the epoch as a program, whose ranks dpdemo or torchrun launches."""
