"""A user's own program, run unmodified on virtual GPUs."""
