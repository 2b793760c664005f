"""How many devices PyTorch can number."""

MAX_GPUS = 128
"""A device's ordinal is an int8 (c10/core/Device.h), so ordinals end at 127."""
