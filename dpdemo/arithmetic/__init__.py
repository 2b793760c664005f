"""PyTorch's rules as numbers: how a batch is cut and sampled, and how close is close enough."""
