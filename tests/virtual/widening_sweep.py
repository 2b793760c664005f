"""What CUDA has no kernel for, by PyTorch's own lists, is not computed in a wider dtype (run this file).

`dtypes` and `dtypesIfCUDA` of its operator tests say what a function takes on the CPU and on CUDA. It runs in
a process of its own, since importing them changes global settings. Prints what was refused.
"""

from __future__ import annotations

import sys

import torch

from dpdemo.virtual import virtual_gpus

DTYPES = (torch.float16, torch.bfloat16, torch.int64, torch.int8)
NAMES = (
    *("softmax", "log_softmax", "nn.functional.gelu", "nn.functional.silu", "nn.functional.softplus"),
    *("nn.functional.leaky_relu", "nn.functional.mse_loss", "nn.functional.layer_norm", "nn.functional.elu"),
    *("linalg.svd", "linalg.eigh", "linalg.qr", "linalg.lu_factor", "linalg.cholesky", "cholesky_solve"),
    *("cdist", "special.ndtri", "special.bessel_j0", "nn.functional.grid_sample", "hypot", "lerp"),
    *("nn.functional.huber_loss", "nn.functional.glu", "logaddexp"),
)


def in_dtype(value: object, dtype: torch.dtype) -> object:
    """Return arguments with their float32 tensors in another dtype."""
    if isinstance(value, (list, tuple)):
        return type(value)(in_dtype(item, dtype) for item in value)
    is_float = isinstance(value, torch.Tensor) and value.dtype is torch.float32
    return value.to(dtype) if is_float else value


def is_refused(name: str, dtype: torch.dtype) -> bool | None:
    """Run the first sample of `name` that has numbers in `dtype`; None if the lists do not refuse it."""
    from torch.testing._internal.common_methods_invocations import op_db

    op = next(op for op in op_db if op.name == name and not op.variant_test_name)
    if dtype in op.dtypesIfCUDA | op.dtypes:
        return None
    samples = op.sample_inputs("cuda", torch.float32)
    sample = next(one for one in samples if one.input.numel() and one.input.dim())
    options = {key: in_dtype(value, dtype) for key, value in sample.kwargs.items()}
    try:
        op(in_dtype(sample.input, dtype), *in_dtype(sample.args, dtype), **options)
    except (RuntimeError, TypeError):
        return True
    return False


def main() -> int:
    """Sweep and report."""
    with virtual_gpus(1):
        found = {(name, dtype): is_refused(name, dtype) for name in NAMES for dtype in DTYPES}
    silent = [f"{name} of {dtype}" for (name, dtype), refused in found.items() if refused is False]
    print(*silent, sep="\n")
    asked = sum(refused is not None for refused in found.values())
    print(f"{asked - len(silent)} of {asked} refused")
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
