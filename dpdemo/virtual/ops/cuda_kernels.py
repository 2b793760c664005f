"""Which kernels for CUDA compare the devices of all operands before they run: the names in cuda_kernels.txt.

The name of an operator's overload follows a dot. Structured and plain kernels name themselves in two ways.
All others leave the comparison to TensorIterator, or make it themselves.
"""

from __future__ import annotations

from pathlib import Path

_TEXT = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").partition("STRUCTURED")[2]
STRUCTURED, PLAIN = (frozenset(names.split()) for names in _TEXT.split("PLAIN"))
