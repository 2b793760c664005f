"""What stands in for functions and types of PyTorch while virtual GPUs are open."""
