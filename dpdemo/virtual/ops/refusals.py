"""Operators that CUDA refuses and the CPU runs: operands of two dtypes, and results that may vary.

Operators without a deterministic kernel are listed in the documentation of
`torch.use_deterministic_algorithms`. A name is that of the kernel in the message.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import convolution_types, not_deterministic
from dpdemo.virtual.labels import label_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.virtual.state import Session

    Arguments = tuple[Any, ...]

# By operator: which of its operands must have the dtype of the first, where the CPU takes a wider one or says
# something else.
ALIKE = {"native_layer_norm": (2, 3), "native_group_norm": (1, 2), "convolution": (1,)}


def _always(_: Arguments) -> bool:
    return True


def _of_real_numbers(args: Arguments) -> bool:
    kind = args[0].dtype
    return bool(kind.is_floating_point or kind.is_complex)


def _of_weights(args: Arguments) -> bool:
    return len(args) > 1 and args[1] is not None


def _of_products(args: Arguments) -> bool:
    return "prod" in args


def _of_maxima(args: Arguments) -> bool:
    """`mode` of `_embedding_bag_backward`: 2 is max."""
    return len(args) > 8 and args[8] == 2


def _of_sums(args: Arguments) -> bool:
    """`accumulate` of `put_`."""
    return len(args) > 3 and bool(args[3])


# By operator: the name in the message, and for which arguments.
NONDETERMINISTIC: dict[str, tuple[str, Callable[[Arguments], bool]]] = {
    "avg_pool3d_backward": ("avg_pool3d_backward_cuda", _always),
    "_adaptive_avg_pool2d_backward": ("adaptive_avg_pool2d_backward_cuda", _always),
    "_adaptive_avg_pool3d_backward": ("adaptive_avg_pool3d_backward_cuda", _always),
    "adaptive_max_pool2d_backward": ("adaptive_max_pool2d_backward_cuda", _always),
    "fractional_max_pool2d_backward": ("fractional_max_pool2d_backward_cuda", _always),
    "fractional_max_pool3d_backward": ("fractional_max_pool3d_backward_cuda", _always),
    "upsample_linear1d_backward": ("upsample_linear1d_backward_out_cuda", _always),
    "upsample_bilinear2d_backward": ("upsample_bilinear2d_backward_out_cuda", _always),
    "upsample_bicubic2d_backward": ("upsample_bicubic2d_backward_out_cuda", _always),
    "upsample_trilinear3d_backward": ("upsample_trilinear3d_backward_out_cuda", _always),
    "reflection_pad1d_backward": ("reflection_pad1d_backward_out_cuda", _always),
    "reflection_pad2d_backward": ("reflection_pad2d_backward_cuda", _always),
    "reflection_pad3d_backward": ("reflection_pad3d_backward_out_cuda", _always),
    "nll_loss2d_forward": ("nll_loss2d_forward_out_cuda_template", _always),
    "_ctc_loss_backward": ("ctc_loss_backward_gpu", _always),
    "_embedding_bag_backward": ("embedding_bag_backward_cuda_max", _of_maxima),
    "put_": ("put_", _of_sums),  # else the CPU refuses it too
    "histc": ("_histc_cuda with floating point input", _of_real_numbers),
    "bincount": ("_bincount_cuda", _of_weights),
    "median.dim": ("median CUDA with indices output", _always),
    "kthvalue": ("kthvalue CUDA", _always),
    "grid_sampler_2d_backward": ("grid_sampler_2d_backward_cuda", _always),
    "grid_sampler_3d_backward": ("grid_sampler_3d_backward_cuda", _always),
    "cumsum": ("cumsum_cuda_kernel", _of_real_numbers),
    "cumsum_": ("cumsum_cuda_kernel", _of_real_numbers),
    "scatter_reduce": ("scatter_reduce_cuda_kernel", _of_products),
    "scatter_reduce_": ("scatter_reduce_cuda_kernel", _of_products),
}


def with_refusals(func: Any, action: Any) -> Any:
    """Return `action`, preceded by what CUDA would refuse of `func`."""
    packet, full = func._schema.name.removeprefix("aten::"), str(func).removeprefix("aten.")
    unsteady = NONDETERMINISTIC.get(packet) or NONDETERMINISTIC.get(full)
    alike = ALIKE.get(packet, ())
    if not func._schema.name.startswith("aten::") or not (unsteady or alike):
        return action

    must_be_steady = torch.are_deterministic_algorithms_enabled if unsteady else _never

    def act(session: Session, func: Any, args: Arguments, kwargs: dict[str, Any]) -> Any:
        # what is rare is asked first: the commonest operators pass here
        for place in alike:
            if (
                args[place] is not None
                and args[place].dtype is not args[0].dtype
                and _is_on_gpu(session, args)
            ):
                raise _not_alike(packet, args[0], args[place])
        if must_be_steady() and _is_on_gpu(session, args):
            _check_steadiness(args, *unsteady)  # type: ignore[misc]
        return action(session, func, args, kwargs)

    return act


def _never() -> bool:
    return False


def _is_on_gpu(session: Session, args: Arguments) -> bool:
    return any(isinstance(arg, torch.Tensor) and label_of(arg, session.key) is not None for arg in args)


def _not_alike(name: str, data: torch.Tensor, other: torch.Tensor) -> RuntimeError:
    """Build the error of kernels that read all operands as one dtype; convolutions ask before."""
    if name == "convolution":
        return convolution_types(data.type(), "weight", other.type(), or_mkldnn=False)
    return RuntimeError(f"expected scalar type {_name(data)} but found {_name(other)}")


def _name(tensor: torch.Tensor) -> str:
    return tensor.type().rpartition(".")[2].removesuffix("Tensor")


def _check_steadiness(args: Arguments, kernel: str, applies: Callable[[Arguments], bool]) -> None:
    if not applies(args):
        return
    only_warn = torch.is_deterministic_algorithms_warn_only_enabled()
    error = not_deterministic(kernel, only_warn=only_warn)
    if not only_warn:
        raise error
    warnings.warn(str(error), UserWarning, stacklevel=2)
