"""When two results of a whole model are the same, but for rounding."""

import torch

from dpdemo.arithmetic.tolerance import whole_model_tolerance
from dpdemo.calls.unseen import are_plain, on_cpu, unseen


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor's numbers to where no GPU's memory is measured."""
    with unseen(tensor):
        return (tensor.detach() if tensor.is_meta else on_cpu(tensor)).clone()


def _numbers(tensor: torch.Tensor, *, are_plain: bool) -> torch.Tensor:
    """Return a tensor on the CPU, none of its numbers left out; one on `meta` has none."""
    found = tensor.detach()
    if found.is_meta:
        return found.new_empty(0, device="cpu")
    found = found if are_plain else found.cpu()
    return found if found.layout == torch.strided else found.to_dense()


def same_numbers(first: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors hold the same numbers, but for rounding; NaN equals NaN."""
    if first.shape != other.shape or first.dtype != other.dtype or first.is_meta != other.is_meta:
        return False
    plain = are_plain(first, other)
    with unseen(first, other):
        return _are_same(_numbers(first, are_plain=plain), _numbers(other, are_plain=plain))


def identical(first: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors hold the same numbers, bit by bit; NaN equals NaN."""
    forms = {(each.shape, each.dtype, each.layout, each.is_meta) for each in (first, other)}
    if len(forms) > 1:
        return False
    plain = are_plain(first, other)
    with unseen(first, other):
        left, right = _numbers(first, are_plain=plain), _numbers(other, are_plain=plain)
        return torch.equal(left, right) or bool(((left == right) | ((left != left) & (right != right))).all())  # noqa: PLR0124 - NaN


def same_update(was: torch.Tensor, first: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two runs have added the same numbers to a tensor, but for rounding."""
    if not was.is_floating_point() or not was.numel() or not was.shape == first.shape == other.shape:
        return True
    added, others = (now.detach().cpu().double() - was.detach().cpu().double() for now in (first, other))
    rounded = 8 * torch.finfo(was.dtype).eps * float(first.detach().cpu().abs().max())
    bound = whole_model_tolerance(name_of(was.dtype)).relative * float(added.abs().max()) + rounded
    return bool((added - others).abs().nan_to_num(0, 0, 0).max() <= bound)


def _are_same(first: torch.Tensor, other: torch.Tensor) -> bool:
    if torch.equal(first, other):  # nearly always, and much faster than looking at tolerances
        return True
    if not (first.is_floating_point() or first.is_complex()):
        return False
    tolerance = whole_model_tolerance(name_of(first.dtype))
    scale = first.abs().nan_to_num(0, 0, 0).max().item()
    absolute = tolerance.relative * scale + tolerance.absolute
    return bool(torch.allclose(first, other, rtol=tolerance.relative, atol=absolute, equal_nan=True))


def name_of(dtype: torch.dtype) -> str:
    """Write a type as reports do: `float32`."""
    return str(dtype).removeprefix("torch.")
