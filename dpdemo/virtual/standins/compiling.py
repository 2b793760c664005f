"""`torch.compile`, which compiles nothing here: a compiled model or function runs as it is written.

The wrapper that it returns is PyTorch's own, so that what a wrapped model is called, saves and replicates is
the same.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch


def compile(model: Any = None, **options: Any) -> Any:  # noqa: A001 - the name of what it stands in for
    """Stand in for `torch.compile`, with a warning that says what it does not do."""
    if model is None:
        return functools.partial(compile, **options)
    warnings.warn(
        "torch.compile: virtual GPUs compile nothing; the model runs as it is written",
        UserWarning,
        stacklevel=2,
    )
    if not isinstance(model, torch.nn.Module):
        return model
    from torch._dynamo.eval_frame import OptimizedModule

    return OptimizedModule(model, _as_written)  # type: ignore[arg-type]


def _as_written(function: Any) -> Any:
    return function
