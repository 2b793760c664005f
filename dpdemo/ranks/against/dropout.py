"""Turn dropout off: ranks draw other masks than one process does."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dpdemo.ranks.observe.notes import around

_NAMES = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_PLACE = 4
"""Of `dropout_p` among the arguments of scaled_dot_product_attention."""


def turn_off() -> None:
    """Replace the functions that drop numbers."""
    for name in _NAMES:
        setattr(functional, name, _same)
    torch.dropout = _same

    @around(functional, "scaled_dot_product_attention")
    def attend(attention: Any, /, *args: Any, **kwargs: Any) -> Any:
        if "dropout_p" in kwargs:
            kwargs["dropout_p"] = 0.0
        if len(args) > _PLACE:
            args = (*args[:_PLACE], 0.0, *args[_PLACE + 1 :])
        return attention(*args, **kwargs)

    @around(nn.RNNBase, "__init__")
    def recurrent(init: Any, /, self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.dropout = 0.0


def _same(input: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:  # noqa: A002 - PyTorch's own name
    return input
