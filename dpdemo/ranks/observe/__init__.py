"""Observers inside a rank of torch.distributed: each notes what it sees for the launcher."""

ADDED = "came after the model was wrapped: wrap it once it has all its parameters, and unfreeze none later"
"""About parameters that DistributedDataParallel does not know."""
