"""DistributedDataParallel, run for real: ranks in processes of torch's own launcher, or of torchrun."""
