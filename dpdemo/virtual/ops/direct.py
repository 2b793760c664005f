"""PyTorch's own Python functions for the commonest operators.

An operator that is called as such (`torch.ops.aten.add.Tensor`) has its arguments read by its schema, which
costs more than a small addition; the function that Python knows (`torch.add`) reads them in code made for it.
Both go to the same kernel. Only functions whose arguments stand in the operator's own order are here, and
these read the same overload from what that operator takes.
"""

from typing import Any

import torch

_aten: Any = torch.ops.aten
_FUNCTIONS: Any = torch._C._VariableFunctions
_METHODS: Any = torch._C.TensorBase
_NETWORKS: Any = torch._C._nn

_OF_TORCH = (
    *("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "neg", "exp", "log", "sqrt", "rsqrt", "abs"),
    *("pow.Tensor_Scalar", "tanh", "sigmoid", "relu", "mm", "bmm", "addmm", "t", "transpose.int", "permute"),
    *("select.int", "unsqueeze", "squeeze.dim", "detach", "embedding", "native_layer_norm", "where.self"),
    *("as_strided", "mul.out"),
    *("sum.dim_IntList", "mean.dim", "sum", "mean", "cat", "_softmax", "_log_softmax"),
)
_OF_TENSORS = (
    *("view", "expand", "add_.Tensor", "mul_.Tensor", "div_.Tensor", "sub_.Tensor", "addcmul_", "addcdiv_"),
    *("lerp_.Scalar", "zero_", "copy_"),
)
_OF_NETWORKS = ("gelu",)


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(_aten, packet), overload or "default")


DIRECT: dict[Any, Any] = {
    _operator(name): getattr(owner, name.partition(".")[0])
    for owner, names in ((_FUNCTIONS, _OF_TORCH), (_METHODS, _OF_TENSORS), (_NETWORKS, _OF_NETWORKS))
    for name in names
}
"""The function to call, by operator."""
