"""The split of a full batch over a grid of batch sizes and numbers of GPUs."""
