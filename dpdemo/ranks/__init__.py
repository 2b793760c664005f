"""Ranks of torch.distributed: launched, observed, and compared."""
