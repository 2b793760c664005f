"""Observers inside a rank of torch.distributed: each notes what it sees for the launcher."""
