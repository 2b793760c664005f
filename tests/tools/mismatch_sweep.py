"""Forget one `.cuda()` in PyTorch's own operator samples, at every place in turn (run this file).

All tensors of a sample are put on a virtual GPU but one, which stays on the CPU: that must be an error, as on
a GPU, except where CUDA takes it (`ACCEPTED`). It prints each that stays silent, and how many are not.
"""

import argparse
import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from opinfo_sweep import parsed
from torch.utils._pytree import tree_flatten, tree_unflatten

from dpdemo.virtual import virtual_gpus

DTYPES = (torch.float32, torch.int64, torch.bool)  # the first that an operator takes
GUARDS: dict[str, Any] = {
    "grad": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cuda"),
}
# Where CUDA takes a tensor that is on another device, and why.
ACCEPTED = {
    "_unsafe_masked_index": "indices may be on the CPU",
    "broadcast_tensors": "each is expanded by itself",
    "expand_as": "only the shape is read",
    "index_put": "indices may be on the CPU",
    "narrow": "the start is one number",
    "nn_functional_batch_norm": "an empty batch is only copied",
    "nn_functional_ctc_loss": "lengths may be on the CPU",
    "reshape_as": "only the shape is read",
    "tensor_split": "the places are on the CPU",
    "view_as": "only the shape is read",
}


def moved(leaves: list[Any], stays: int | None) -> list[Any]:
    """Copy the tensors among `leaves` to the GPU, but for one."""

    def copy(place: int, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().clone().to("cpu" if place == stays else "cuda:0")

    return [copy(place, leaf) for place, leaf in enumerate(leaves)]


def forgotten(op: Any, limit: int, guard: Any) -> Iterator[tuple[str, bool]]:
    """Yield each operand of each sample, and whether it is an error that it stays on the CPU."""
    dtype = next(kind for kind in DTYPES if kind in op.supported_dtypes("cpu"))
    for number, sample in zip(range(limit), op.sample_inputs("cpu", dtype), strict=False):
        leaves, shape = tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def run(stays: int | None) -> bool:
            given, args, kwargs = tree_unflatten(moved(leaves, stays), shape)  # noqa: B023
            try:
                with guard():
                    op(given, *args, **kwargs)
            except Exception:
                return False
            return True

        if len(tensors) < 2 or not run(None):
            continue
        for place in tensors:
            if leaves[place].dim():
                yield f"sample {number}, operand {tensors.index(place)}", not run(place)


def candidates(names: set[str]) -> list[Any]:
    """Return the operators to be swept; to be called inside a block, where functions are what users call."""
    from torch.testing._internal.common_methods_invocations import op_db

    known = [op for op in op_db if set(DTYPES) & set(op.supported_dtypes("cpu"))]
    return [op for op in known if not names or op.name in names]


def sweep(names: set[str], limit: int, every: int, guard: Any) -> tuple[dict[str, list[str]], int]:
    """Return the operators that stay silent, with the operands, and how many were tried."""
    silent: dict[str, list[str]] = {}
    num_tried = 0
    for op in candidates(names)[::every]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for what, is_error in forgotten(op, limit, guard):
                num_tried += 1
                if not is_error and op.formatted_name not in ACCEPTED:
                    silent.setdefault(op.formatted_name, []).append(what)
    return silent, num_tried


def main() -> int:
    """Sweep and report."""
    options = parsed(__doc__, "--under", GUARDS, "what is on while the operators run")
    return 1 if sum(report(options, under) for under in options.under or ["grad"]) else 0


def report(options: argparse.Namespace, under: str) -> int:
    """Sweep the operators under one guard; return how many operands are silent."""
    with virtual_gpus(1):
        silent, num_tried = sweep(set(options.names), options.samples, options.every, GUARDS[under])
    for name, operands in silent.items():
        print(f"{name}: silent with {'; '.join(operands)} on the CPU")
    num_silent = sum(map(len, silent.values()))
    print(f"{num_tried - num_silent} of {num_tried} operands left on the CPU are errors or may be there")
    return num_silent


if __name__ == "__main__":
    sys.exit(main())
