"""Reading tensors without the ledger: what an observer copies is no move of the program's."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn


def unseen(*tensors: torch.Tensor) -> AbstractContextManager[Any]:
    """Read tensors in a `with` block as plain CPU tensors, which is quicker than on their virtual GPU.

    It changes nothing if one of them has operators of its own.
    """
    return torch._C._DisableTorchDispatch() if are_plain(*tensors) else nullcontext()


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Take a tensor's numbers to the CPU, in a `with` block of `unseen`; those of a virtual GPU are there."""
    found = tensor.detach()
    return found if are_plain(tensor) else found.cpu()


def are_plain(*tensors: torch.Tensor) -> bool:
    """Return whether C++ sees all of them as ordinary tensors of the CPU, as on a virtual GPU."""
    return all(type(tensor) in {torch.Tensor, nn.Parameter} for tensor in tensors)
