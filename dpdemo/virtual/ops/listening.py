"""Listeners for the numbers that the host reads, random draws, and operators of DTensor."""

from collections.abc import Callable
from typing import Any

reads: list[Callable[[Any, Any], None]] = []
"""Each is called with a tensor and the number that was read of it."""
draws: list[Callable[[Any, Any], None]] = []
"""Each is called with a random operator and its result."""
wrapped: dict[int, Callable[[tuple[Any, ...], dict[str, Any]], None]] = {}
"""By the `id` of an operator (its hash is a function in Python), what is called with its arguments before a
subclass of tensors, such as DTensor, runs it."""
