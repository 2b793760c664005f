"""The split rule over a grid of batch sizes and numbers of GPUs."""
