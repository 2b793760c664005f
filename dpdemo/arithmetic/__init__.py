"""PyTorch's rules as numbers: how a batch is cut, sampled and balanced, and how close is close enough."""
