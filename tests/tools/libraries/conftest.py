"""torchvision beside a torch for which its C++ part was not made: its Python part is all that is needed."""

import importlib.util
from pathlib import Path

import torch

_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def pytest_configure():
    """Declare the operators that `import torchvision` extends without asking whether its C++ part loaded."""
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return
    for library in Path(found.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(str(library))
        except OSError:
            for name in _OPERATORS:
                torch.library.define(f"torchvision::{name}", _SCHEMA)
