"""The largest number of devices in PyTorch, and of machines in a preview."""

MAX_GPUS = 128
"""A device's ordinal is an int8 (c10/core/Device.h), so ordinals end at 127."""
MAX_NODES = 1024
"""Machines of DDP; each rank is an object in the report."""
