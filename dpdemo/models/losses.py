"""The loss of a training step: the model's own, or what is made of its output."""

import functools
import operator
from collections.abc import Callable

import torch
from torch.nn import functional

from dpdemo.calls.tree import named_tensors
from dpdemo.errors import RunError, about
from dpdemo.models.user import find_object

Loss = Callable[[object], torch.Tensor]


def make_loss(name: str) -> Loss:
    """Return the function from a model's output to the loss.

    Raises:
        UsageError: if the user's own function cannot be imported.

    """
    with about("loss"):
        return _LOSSES.get(name) or find_object(name)


def resolve_loss(name: str, output: object) -> str:
    """Return the loss that "auto" means for an output: its own if it has one, else the mean."""
    if name != "auto":
        return name
    return "mean" if _own_loss(output) is None else "output.loss"


def _own_loss(output: object) -> object:
    """Return an output's `loss`; of a tensor or a tuple without names, its only number."""
    if isinstance(output, dict):
        return output.get("loss")
    parts = output if isinstance(output, (tuple, list)) else (output,)
    numbers = [each for each in parts if _is_number(each)]
    return getattr(output, "loss", numbers[0] if len(numbers) == 1 else None)


def _is_number(part: object) -> bool:
    return isinstance(part, torch.Tensor) and part.is_floating_point() and part.ndim == 0


def _mean_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the mean; a number itself, since another tensor would take a block."""
    return tensor.mean() if tensor.ndim else tensor


def _numbers(output: object) -> list[torch.Tensor]:
    found = [tensor for _, tensor in named_tensors(output) if tensor.is_floating_point()]
    if not found:
        raise RunError(
            f"expected an output with a floating-point tensor, got {type(output).__name__}",
            key="loss",
            hint="name a function that makes the loss of it: {loss=pkg.mod:function}",
        )
    return found


def _output_loss(output: object) -> torch.Tensor:
    loss = _own_loss(output)
    if not isinstance(loss, torch.Tensor):
        raise RunError(
            f"expected an output with a `loss`, got {type(output).__name__}",
            key="loss",
            hint="give the model its labels, or choose another loss",
        )
    return _mean_of(loss)


def _mse(output: object) -> torch.Tensor:
    first = _numbers(output)[0]
    return functional.mse_loss(first, torch.zeros_like(first))


def _cross_entropy(output: object) -> torch.Tensor:
    """Compute the cross-entropy of the first class: the last dimension are classes, all others samples."""
    rows = _numbers(output)[0].flatten(0, -2)
    return functional.cross_entropy(rows, torch.zeros(len(rows), dtype=torch.int64, device=rows.device))


_LOSSES: dict[str, Loss] = {
    "auto": lambda output: _LOSSES[resolve_loss("auto", output)](output),
    "output.loss": _output_loss,
    "mean": lambda output: functools.reduce(operator.add, map(_mean_of, _numbers(output))),
    "mse": _mse,
    "cross-entropy": _cross_entropy,
}
