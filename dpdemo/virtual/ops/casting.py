"""`torch.autocast("cuda")`: CUDA's own lists of operators, applied to tensors on virtual GPUs alone.

PyTorch decides by C++'s device which operators to cast, so a GPU's lists would never be used here, and the
CPU's lists are others. So the lists of ATen/autocast_mode.h are repeated below, as Python kernels for the
dispatch key `AutocastCUDA`; while autocast is on for "cuda" in a thread, that key is included in the thread's
dispatch. All of the state (on or off, dtype, nesting, by thread) stays PyTorch's own.
"""

# ruff: noqa: SIM905 - a hundred names are easier to read, and to compare, as text

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.applying import stands_in
from dpdemo.virtual.labels import gpus_of, label_of
from dpdemo.virtual.state import the_session

if TYPE_CHECKING:
    from collections.abc import Callable

    Kernel = Callable[..., Any]

# Each list is one of ATen/autocast_mode.h (2.13); an operator that a release lacks is passed over.
LOWER_PRECISION = """
    _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv
    linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell
    _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention
    scaled_dot_product_attention
""".split()
# On CUDA these end in `_cudnn_rnn`, which casts all its operands (aten/src/ATen/cudnn/AutocastRNN.cpp).
RECURRENT = """
    lstm.input lstm.data gru.input gru.data rnn_tanh.input rnn_tanh.data rnn_relu.input rnn_relu.data
""".split()
FP32 = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm
    frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss
    cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss
    mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss
    multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
    _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa
    upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
""".split()
FP32_RESULT = """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
""".split()
WIDEST = """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add cat stack
""".split()
BANNED = ["binary_cross_entropy"]

# From float16 to float32 these are one kernel, which makes no wide copy of its operand (native/SoftMax.cpp).
_FROM_HALF = {
    torch.ops.aten.softmax.int: torch.ops.aten._softmax.default,
    torch.ops.aten.log_softmax.int: torch.ops.aten._log_softmax.default,
}

_KEY = "AutocastCUDA"
_KEYSET: Any = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
_CPU_KEY = "AutocastCPU"
_CPU_KEYSET: Any = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_set_enabled = torch.set_autocast_enabled
_clear_cache = torch.clear_autocast_cache
_casts: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def _eligible(value: object) -> bool:
    """Return whether autocast may cast `value`: a floating-point tensor on a GPU (`is_autocast_eligible`)."""
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and label_of(value, the_session().key) is not None
    )


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """Cast a tensor, or those in a list; weights are cast once until autocast ends (`cached_cast`)."""
    if isinstance(value, (list, tuple)):
        return [_cast(item, dtype) for item in value]
    if not _eligible(value) or value.dtype in (torch.float64, dtype):
        return value
    if not (value.dtype is torch.float32 and value.requires_grad and value.is_leaf and not value._is_view()):
        return value.to(dtype)
    if not torch.is_autocast_cache_enabled() or dtype is torch.float32:
        return value.to(dtype)
    known = _casts.get(id(value))
    if known is None or known[1].dtype is not dtype:
        known = _casts[id(value)] = (value, value.to(dtype))
    return known[1]


def cast_for_autocast(*tensors: Any, dtype: torch.dtype | None = None) -> list[Any]:
    """Cast operands as autocast would, where it is on: to `dtype`, or to its lower precision."""
    if not torch.is_autocast_enabled("cuda"):
        return list(tensors)
    return [_cast(tensor, dtype or torch.get_autocast_dtype("cuda")) for tensor in tensors]


def _casting(op: Any, choose: Callable[[tuple[Any, ...]], torch.dtype]) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYSET):
            dtype = choose(args)
            args = tuple(_cast(arg, dtype) for arg in args)
            return op(*args, **{name: _cast(value, dtype) for name, value in kwargs.items()})

    return kernel


def _widest(args: tuple[Any, ...]) -> torch.dtype:
    """Return float32 if any operand has it, else the lower precision (`promote_type`)."""
    flat = [item for arg in args for item in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    wide = any(_eligible(item) and item.dtype is torch.float32 for item in flat)
    return torch.float32 if wide else torch.get_autocast_dtype("cuda")


def _with_float32_result(op: Any) -> Kernel:
    """Ask for a float32 result unless the caller asked for another (`fp32_set_opt_dtype`)."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYSET):
            names = [spec.name for spec in op._schema.arguments]
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            if not _eligible(args[0]) or given.get("dtype") is not None:
                return op(**given)
            if op in _FROM_HALF and args[0].dtype is torch.float16:
                return _FROM_HALF[op](args[0], given["dim"], True)
            return op(**given | {"dtype": torch.float32})

    return kernel


def _banned(op: Any) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if not any(_eligible(arg) for arg in args):
            with torch._C._ExcludeDispatchKeyGuard(_KEYSET):
                return op(*args, **kwargs)
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
            "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
            "In this case, combine the two layers using "
            "torch.nn.functional.binary_cross_entropy_with_logits\n"
            "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
            "safe to autocast."
        )

    return kernel


_libraries: dict[str, torch.library.Library] = {}  # the kernels of the open block, by type of device


@stands_in(torch, why="C++ would cast by its own devices")
def set_autocast_enabled(*args: Any) -> None:
    """Turn autocast on or off for a type of device, "cuda" if none is given."""
    device_type, enabled = args if len(args) == 2 else ("cuda", args[0])
    _set_enabled(device_type, enabled)
    if enabled and device_type in {"cpu", "cuda"} and device_type not in _libraries:
        _libraries[device_type] = _register() if device_type == "cuda" else _register_for_cpu()
    if device_type == "cuda":
        torch._C._dispatch_tls_set_dispatch_key_included(_KEY, enabled)


@stands_in(torch, why="it keeps weights that were cast")
def clear_autocast_cache() -> None:
    """Forget the weights that were cast."""
    _casts.clear()
    _clear_cache()


def stop_casting() -> None:
    """Take the kernels of the block out again."""
    clear_autocast_cache()
    torch._C._dispatch_tls_set_dispatch_key_included(_KEY, False)
    while _libraries:
        _libraries.popitem()[1]._destroy()  # type: ignore[no-untyped-call]


def _register() -> torch.library.Library:
    library = torch.library.Library("aten", "IMPL", _KEY)  # type: ignore[no-untyped-call]
    kinds: tuple[tuple[list[str], Callable[[Any], Kernel]], ...] = (
        (LOWER_PRECISION + RECURRENT, lambda op: _casting(op, lambda _: torch.get_autocast_dtype("cuda"))),
        (FP32, lambda op: _casting(op, lambda _: torch.float32)),
        (FP32_RESULT, _with_float32_result),
        (WIDEST, lambda op: _casting(op, _widest)),
        (BANNED, _banned),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel of C++ is overridden, which is the point
        for names, build in kinds:
            for op in filter(None, map(_find_operator, names)):
                library.impl(op, build(op), allow_override=True)  # type: ignore[no-untyped-call]
    return library


def _find_operator(name: str) -> Any:
    """Return the operator of this name, or None if this release has none."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


def _register_for_cpu() -> torch.library.Library:
    """Let `torch.autocast("cpu")` cast as usual, but not on GPUs, which C++ takes for the CPU.

    C++'s kernels for the dispatch key `AutocastCPU` do the casting; each is overridden by one that asks first
    where the operands are.
    """
    library = torch.library.Library("aten", "IMPL", _CPU_KEY)  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel of C++ is overridden, which is the point
        for name in torch._C._dispatch_get_all_op_names():
            if not torch._C._dispatch_has_kernel_for_dispatch_key(name, _CPU_KEY):
                continue
            op = _find_operator(name.removeprefix("aten::")) if name.startswith("aten::") else None
            if op is not None:
                kernel = _on_cpu_only(op, torch.library.get_kernel(op, _CPU_KEY))
                library.impl(op, kernel, with_keyset=True, allow_override=True)  # type: ignore[no-untyped-call]
    return library


def _on_cpu_only(op: Any, original: Any) -> Kernel:
    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if gpus_of((*args, *kwargs.values())) <= {None}:
            return original.call_boxed(keyset, *args, **kwargs)
        with torch._C._ExcludeDispatchKeyGuard(_CPU_KEYSET):
            return op(*args, **kwargs)

    return kernel
