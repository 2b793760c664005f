"""The check with which recurrent networks begin: input, hidden state and weights on one device.

It stands in C++ before any operator is called (`check_attributes`, aten/src/ATen/native/RNN.cpp), and
compares C++'s devices. A hidden state left on the CPU is the commonest mistake with recurrent networks, so it
is made here too.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import recurrent_devices

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def checked(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build a stand-in for `torch._VF.lstm` and its like that makes the check first."""

    @functools.wraps(original)
    def call(data: torch.Tensor, *args: Any) -> Any:
        packed = (
            isinstance(args[0], torch.Tensor) and not args[0].is_floating_point()
        )  # batch sizes come first
        hidden, weights = args[packed], args[packed + 1]
        _check("hidden", data, hidden if isinstance(hidden, (list, tuple)) else (hidden,))
        _check("parameter", data, weights)
        return original(data, *args)

    return call


def _check(kind: str, data: torch.Tensor, others: Any) -> None:
    for other in others:
        if other.device != data.device:
            raise recurrent_devices(kind, data.device, other.device)
