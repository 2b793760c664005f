"""See, run and check how PyTorch splits a batch over GPUs, on any machine, with or without GPUs."""

__version__ = "0.1.0"
