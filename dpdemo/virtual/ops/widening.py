"""Operators that CUDA has for a narrow dtype and the CPU does not: run wider, and rounded.

There are few (`histc` of integers, `avg_pool3d` of float16, some of complex32), and which they are changes
with every release. So the CPU's own refusal decides: "... not implemented for 'Half'". Integers CUDA takes
where the CPU does not in `histc` alone, and neither takes narrow numbers in LAPACK's operators (PyTorch's
database of operators, `dtypes` and `dtypesIfCUDA`): there the refusal stands.

Products of float16 numbers the CPU has, and computes on a slow path: they are run wider at once. Products of
integers only the CPU has.

Layer and group norms CUDA refuses of operands of two dtypes, which the CPU takes; layer norms of narrow
numbers it computes in float32, and keeps their statistics so.

Beside them there is softmax from float16 to float32, which CUDA computes in one kernel, without a wide copy
of what it is given.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.labels import gpus_of
from dpdemo.virtual.ops.scratch import CONVOLUTIONS
from dpdemo.virtual.ops.special import NOTHING, on, records, special

if TYPE_CHECKING:
    from dpdemo.virtual.state import Session

# The names of C++'s errors, with the dtype and the one to compute in.
_NAMES = {
    "Half": (torch.float16, torch.float32),
    "BFloat16": (torch.bfloat16, torch.float32),
    "ComplexHalf": (torch.complex32, torch.complex64),
    "Byte": (torch.uint8, torch.float64),
    "Char": (torch.int8, torch.float64),
    "Short": (torch.int16, torch.float64),
    "Int": (torch.int32, torch.float64),
    "Long": (torch.int64, torch.float64),
}
_INTEGERS = {"Bool", "Byte", "Char", "Short", "Int", "Long"}
_REFUSED_NARROW = re.compile(
    "linalg|cholesky|geqrf|ormqr|orgqr|householder|_lu_|triangular_solve|lstsq|svd|cdist|pdist|ctc_loss|histogram"
)
_REFUSAL = re.compile(r"(?:not implemented for '|Unsupported dtype )(\w+)")


def cast(value: Any, source: torch.dtype, target: torch.dtype) -> Any:
    """Cast the tensors of dtype `source`, and that dtype itself, in an operator's arguments or results."""
    if isinstance(value, (list, tuple)):
        return type(value)([cast(item, source, target) for item in value])
    if isinstance(value, torch.Tensor):
        return value.to(target) if value.dtype == source else value
    return target if value is source else value


_aten = torch.ops.aten
_WHY = "CUDA computes it from float16 to float32 in one kernel"


@on("from_half", _aten._softmax.default, _aten._log_softmax.default, why=_WHY)
def _softmax(func: Any, data: torch.Tensor, dim: int, _: bool) -> Any:
    return func(data.float(), dim, False)


@on("from_half", _aten._softmax_backward_data.default, _aten._log_softmax_backward_data.default, why=_WHY)
def _softmax_backward(
    func: Any, gradient: torch.Tensor, output: torch.Tensor, dim: int, narrow: torch.dtype
) -> Any:
    return func(gradient, output, dim, output.dtype).to(narrow)


def _product(kernel: str, *ops: Any) -> None:
    """Name CUDA's kernel of products, which has no integers (native/cuda/Blas.cpp)."""
    on("product", *ops, why="the CPU is slow in float16, and takes integers")(kernel)


_product("addmm_cuda", _aten.mm.default, _aten.addmm.default)
_product("baddbmm_cuda", _aten.bmm.default, _aten.baddbmm.default, _aten.addbmm.default)
_product("addmv_impl_cuda", _aten.mv.default, _aten.addmv.default)
_product("dot", _aten.dot.default, _aten.vdot.default)
for _op in CONVOLUTIONS:
    _product(f"{_op._schema.name.removeprefix('aten::')}_cuda", _op)


def run_wider(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], refusal: RuntimeError) -> Any:
    """Run `func`, which the CPU refused, in a wider dtype.

    Raises:
        UnsupportedOpError: it was refused for another reason, or wider too.

    """
    from_half = special(func).from_half
    if from_half is not None and args[-1] in (True, torch.float16):
        return from_half(func, *args)
    name = _REFUSAL.search(str(refusal))
    if name is None and str(refusal).startswith("Could not run"):
        raise UnsupportedOpError(
            f"{func}: the CPU has no such operator, and virtual GPUs do not compute it by others"
        ) from refusal
    if name is None or _cuda_refuses(func, name[1]):
        raise refusal
    if name[1] not in _NAMES or func._schema.is_mutable:
        raise UnsupportedOpError(f"{func}: {refusal}") from refusal
    try:
        return run_cast(func, args, kwargs, *_NAMES[name[1]])
    except RuntimeError as again:
        raise UnsupportedOpError(f"{func}: {refusal}") from again


def _cuda_refuses(func: Any, dtype: str) -> bool:
    """Return whether CUDA has no kernel either for an operator's operands of this dtype."""
    if dtype in _INTEGERS:
        return not func._schema.name.startswith("aten::histc")
    return _REFUSED_NARROW.search(func._schema.name) is not None


def run_cast(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], narrow: torch.dtype, wide: torch.dtype
) -> Any:
    """Run `func` with what is of dtype `narrow` in dtype `wide`, and round its result."""
    named = {key: cast(item, narrow, wide) for key, item in kwargs.items()}
    return cast(func(*cast(args, narrow, wide), **named), wide, narrow)


def in_float32(func: Any, op: Any) -> Any:
    """Return what computes products and layer norms as CUDA does, and `op` itself for any other operator.

    Most CPUs take up to a hundred times as long for a product of float16 numbers as for one of float32
    numbers. CUDA's kernels multiply float16 numbers, add up in float32 and round once; so does this.
    CUDA has no products of integers.
    """
    if func in _NORMS:
        return _NORMS[func](op)
    kernel = records.get(func, NOTHING).product  # written out, for speed
    if kernel is None:
        return op

    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = args[1].dtype
        if dtype is not torch.float32 and all(
            arg.dtype is dtype for arg in args if isinstance(arg, torch.Tensor)
        ):
            if dtype is torch.float16:
                return run_cast(op, args, kwargs, torch.float16, torch.float32)
            if not (dtype.is_floating_point or dtype.is_complex):
                name = next((name for name, (known, _) in _NAMES.items() if known is dtype), "Bool")
                raise NotImplementedError(f"\"{kernel}\" not implemented for '{name}'")
        return op(*args, **kwargs)

    return run


_HALF = {torch.float16, torch.bfloat16}


def _layer_norm(op: Any) -> Any:
    """Compute in float32, and keep statistics so, as native/cuda/layer_norm_kernel.cu does."""

    def run(data: torch.Tensor, *args: Any) -> Any:
        narrow = data.dtype
        if narrow not in _HALF:
            return op(data, *args)
        result, *statistics = op(data.float(), *cast(args, narrow, torch.float32))
        return result.to(narrow), *statistics

    return run


def _layer_norm_backward(op: Any) -> Any:
    def run(*args: Any) -> Any:
        narrow = args[1].dtype
        if narrow not in _HALF:
            return op(*args)
        return cast(op(*cast(args, narrow, torch.float32)), torch.float32, narrow)

    return run


_NORMS = {
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_layer_norm_backward.default: _layer_norm_backward,
}
_WHY_ALIKE = "CUDA refuses operands of two dtypes, which the CPU takes"
on("alike", _aten.native_layer_norm.default, _aten.native_layer_norm.out, why=_WHY_ALIKE)((2, 3))
on("alike", _aten.native_group_norm.default, _aten.native_group_norm.out, why=_WHY_ALIKE)((1, 2))


def with_refusals(func: Any, action: Any) -> Any:
    """Return `action`, preceded by what CUDA would refuse of `func`."""
    places = special(func).alike
    if places is None:
        return action

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for place in places:  # the dtypes come first: they are the quickest to compare
            other = args[place]
            if other is not None and other.dtype is not args[0].dtype and gpus_of(args) - {None}:
                names = map(dtype_name, (args[0], other))
                raise RuntimeError("expected scalar type {} but found {}".format(*names))
        return action(session, func, args, kwargs)

    return act


def dtype_name(tensor: torch.Tensor) -> str:
    """Return a tensor's dtype as C++ names it, such as "BFloat16"."""
    return tensor.type().rpartition(".")[2].removesuffix("Tensor")
