"""Operands of two dtypes that CUDA's kernels refuse and the CPU's take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpdemo.virtual.labels import gpus_of

if TYPE_CHECKING:
    import torch

    from dpdemo.virtual.state import Session

# By operator: which operands must have the first one's dtype.
_ALIKE = {"aten::native_layer_norm": (2, 3), "aten::native_group_norm": (1, 2)}


def with_refusals(func: Any, action: Any) -> Any:
    """Return `action`, preceded by what CUDA would refuse of `func`."""
    places = _ALIKE.get(func._schema.name)
    if places is None:
        return action

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for place in places:  # the dtypes come first: they are the quickest to compare
            other = args[place]
            if other is not None and other.dtype is not args[0].dtype and gpus_of(args) - {None}:
                raise RuntimeError(f"expected scalar type {_name(args[0])} but found {_name(other)}")
        return action(session, func, args, kwargs)

    return act


def _name(tensor: torch.Tensor) -> str:
    return tensor.type().rpartition(".")[2].removesuffix("Tensor")
