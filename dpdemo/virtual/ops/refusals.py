"""Operators that CUDA refuses and the CPU runs: operands of two dtypes, and results that may vary.

Operators without a deterministic kernel are listed in the documentation of
`torch.use_deterministic_algorithms`. A name is that of the kernel in the message.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import convolution_types
from dpdemo.virtual.labels import gpus_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.virtual.state import Session

    Arguments = tuple[Any, ...]

# By operator: which operands must have the first one's dtype, where the CPU takes a wider one or says
# something else.
_ALIKE = {"native_layer_norm": (2, 3), "native_group_norm": (1, 2), "convolution": (1,)}
# By operator: the kernel in the message, which is not deterministic for any arguments.
_UNSTEADY = dict(
    line.split()
    for line in """
    avg_pool3d_backward avg_pool3d_backward_cuda
    _adaptive_avg_pool2d_backward adaptive_avg_pool2d_backward_cuda
    _adaptive_avg_pool3d_backward adaptive_avg_pool3d_backward_cuda
    adaptive_max_pool2d_backward adaptive_max_pool2d_backward_cuda
    fractional_max_pool2d_backward fractional_max_pool2d_backward_cuda
    fractional_max_pool3d_backward fractional_max_pool3d_backward_cuda
    upsample_linear1d_backward upsample_linear1d_backward_out_cuda
    upsample_bilinear2d_backward upsample_bilinear2d_backward_out_cuda
    upsample_bicubic2d_backward upsample_bicubic2d_backward_out_cuda
    upsample_trilinear3d_backward upsample_trilinear3d_backward_out_cuda
    reflection_pad1d_backward reflection_pad1d_backward_out_cuda
    reflection_pad2d_backward reflection_pad2d_backward_cuda
    reflection_pad3d_backward reflection_pad3d_backward_out_cuda
    nll_loss2d_forward nll_loss2d_forward_out_cuda_template
    _ctc_loss_backward ctc_loss_backward_gpu
    grid_sampler_2d_backward grid_sampler_2d_backward_cuda
    grid_sampler_3d_backward grid_sampler_3d_backward_cuda
    """.strip().splitlines()
)
# By operator: the kernel in the message, and for which arguments it is not deterministic.
_UNSTEADY_FOR: dict[str, tuple[str, Callable[[Arguments], Any]]] = {
    **{name: (kernel, lambda _: True) for name, kernel in _UNSTEADY.items()},
    "median.dim": ("median CUDA with indices output", lambda _: True),
    "kthvalue": ("kthvalue CUDA", lambda _: True),
    "_embedding_bag_backward": ("embedding_bag_backward_cuda_max", lambda args: args[8:9] == (2,)),  # `mode`
    "put_": ("put_", lambda args: any(args[3:4])),  # `accumulate`
    "bincount": ("_bincount_cuda", lambda args: args[1:2] not in {(), (None,)}),  # `weights`
    "histc": ("_histc_cuda with floating point input", lambda args: _is_of_real_numbers(args[0])),
    **dict.fromkeys(("cumsum", "cumsum_"), ("cumsum_cuda_kernel", lambda args: _is_of_real_numbers(args[0]))),
    **dict.fromkeys(
        ("scatter_reduce", "scatter_reduce_"), ("scatter_reduce_cuda_kernel", lambda args: "prod" in args)
    ),
}


def _is_of_real_numbers(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def with_refusals(func: Any, action: Any) -> Any:
    """Return `action`, preceded by what CUDA would refuse of `func`."""
    packet, full = func._schema.name.removeprefix("aten::"), str(func).removeprefix("aten.")
    unsteady = _UNSTEADY_FOR.get(packet) or _UNSTEADY_FOR.get(full)
    alike = _ALIKE.get(packet, ())
    if not func._schema.name.startswith("aten::") or not (unsteady or alike):
        return action

    def act(session: Session, func: Any, args: Arguments, kwargs: dict[str, Any]) -> Any:
        for place in alike:  # the dtypes come first: they are the quickest to compare
            other = args[place]
            if other is not None and other.dtype is not args[0].dtype and gpus_of(args) - {None}:
                raise _not_alike(packet, args[0], other)
        if unsteady and torch.are_deterministic_algorithms_enabled() and gpus_of(args) - {None}:
            _check_steadiness(args, *unsteady)
        return action(session, func, args, kwargs)

    return act


def _not_alike(name: str, data: torch.Tensor, other: torch.Tensor) -> RuntimeError:
    """Build the error of kernels that read all operands as one dtype; convolutions ask before."""
    if name == "convolution":
        return convolution_types(data.type(), "weight", other.type(), or_mkldnn=False)
    return RuntimeError(f"expected scalar type {_name(data)} but found {_name(other)}")


def _name(tensor: torch.Tensor) -> str:
    return tensor.type().rpartition(".")[2].removesuffix("Tensor")


def _check_steadiness(args: Arguments, kernel: str, applies: Callable[[Arguments], bool]) -> None:
    """Raise or warn for a kernel whose results differ from run to run (aten/src/ATen/Context.cpp)."""
    if not applies(args):
        return
    only_warn = torch.is_deterministic_algorithms_warn_only_enabled()
    mode, ways_out = "True, warn_only=True", "You can"
    if not only_warn:
        mode = "True"
        ways_out = (
            "You can turn off determinism just for this operation, or you can use the 'warn_only=True' "
            "option, if that's acceptable for your application. You can also"
        )
    error = RuntimeError(
        f"{kernel} does not have a deterministic implementation, but you set "
        f"'torch.use_deterministic_algorithms({mode})'. {ways_out} file an issue at "
        "https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for "
        "this operation."
    )
    if not only_warn:
        raise error
    warnings.warn(str(error), UserWarning, stacklevel=2)
