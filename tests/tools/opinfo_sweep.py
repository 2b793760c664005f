"""Run PyTorch's own operator samples on a virtual GPU against the plain CPU (run this file).

Every operator of PyTorch's database (`op_db`, used in its own tests) is run in one dtype on up to SAMPLES
sample inputs: outputs, their devices, and gradients are compared. Operators that the CPU or CUDA does not
have in that dtype are left out. It prints one line for each operator that does not agree, and how many do.
Arguments, if any, choose operators by name.
"""

import argparse
import sys
import traceback
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from dpdemo.virtual import virtual_gpus

SAMPLES = 3
DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "bool", "complex64")
# Sums of half precision are added up in float32 on CUDA where some of PyTorch's functions on the CPU round
ROUNDING = {torch.float16: {"rtol": 1e-3, "atol": 1e-3}, torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-2}}
# What these return is whatever memory held: only shapes can be compared.
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


class Unrunnable(Exception):  # noqa: N818 - not a fault
    """An operator of which no sample runs on this CPU."""


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a nested value."""
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def fresh(value: Any, device: str) -> Any:
    """Copy a sample onto `device`, tensors as new leaves, and devices among the arguments with it."""

    def item(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().to(device).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.device) or leaf == "cpu":
            return torch.device(device)
        return leaf

    return tree_map(item, value)


def outcome(op: Any, sample: Any, device: str) -> tuple[Any, list[Any]]:
    """Run one sample forward and backward; return the outputs and the gradients."""
    given, args, kwargs = (fresh(part, device) for part in (sample.input, sample.args, sample.kwargs))
    torch.manual_seed(0)
    result = op(given, *args, **kwargs)
    if sample.output_process_fn_grad is not None and op.supports_autograd:
        processed = sample.output_process_fn_grad(result)
    else:
        processed = result
    leaves = [leaf for leaf in tensors_of((given, args, kwargs)) if leaf.requires_grad]
    outputs = [out for out in tensors_of(processed) if out.requires_grad]
    if not leaves or not outputs:
        return result, []
    seeds = [torch.ones_like(out) for out in outputs]
    return result, list(torch.autograd.grad(outputs, leaves, seeds, allow_unused=True))


def compare(what: str, ours: Any, theirs: Any, values: bool) -> None:
    """Raise AssertionError where two outcomes differ."""
    mine, yours = tensors_of(ours), tensors_of(theirs)
    assert len(mine) == len(yours), f"{what}: {len(mine)} tensors, {len(yours)} expected"
    for item, other in zip(mine, yours, strict=True):
        if what == "gradient":
            assert item.is_cuda, "gradient: on the CPU"
        assert item.dtype == other.dtype, f"{what}: {item.dtype}, {other.dtype} expected"
        assert item.shape == other.shape, f"{what}: {item.shape}, {other.shape} expected"
        assert item.layout == other.layout, f"{what}: {item.layout}, {other.layout} expected"
        if values:
            near = ROUNDING.get(item.dtype, {"rtol": 1e-4, "atol": 1e-5})
            torch.testing.assert_close(item.cpu(), other.cpu(), **near, equal_nan=True)


def check(op: Any, limit: int, dtype: torch.dtype = torch.float32) -> None:
    """Check one operator in one dtype; raise what goes wrong on the virtual GPU only.

    Raises:
        Unrunnable: no sample ran on the CPU, so that there is nothing to compare with.

    """
    num_compared = 0
    with_gradient = op.supported_backward_dtypes("cpu") & op.supported_backward_dtypes("cuda")
    grad = op.supports_autograd and dtype in with_gradient
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad)):
        if number == limit:
            break
        try:
            expected, expected_grads = outcome(op, sample, "cpu")
        except Exception:  # noqa: S112 - not runnable on this CPU at all
            continue
        result, grads = outcome(op, sample, "cuda:0")
        if tensors_of((sample.input, sample.args, sample.kwargs)) or "device" in sample.kwargs:
            assert all(out.is_cuda for out in tensors_of(result)), "output: on the CPU"
        compare("output", result, expected, values=op.name not in UNINITIALISED)
        compare("gradient", grads, expected_grads, values=op.name not in UNINITIALISED)
        num_compared += 1
    if not num_compared:
        raise Unrunnable("no sample ran on the CPU")


def candidates(names: Iterable[str], dtype: torch.dtype = torch.float32) -> list[Any]:
    """Return the operators that take `dtype`, or those named; to be called inside a block."""
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = set(names)
    return [
        op
        for op in op_db
        if dtype in op.supported_dtypes("cpu") & op.supported_dtypes("cuda")
        and (not wanted or op.name in wanted)
    ]


def sweep(
    names: Iterable[str], limit: int = SAMPLES, every: int = 1, dtype: torch.dtype = torch.float32
) -> tuple[dict[str, str], int]:
    """Check operators; return those that do not agree, with the reason, and how many could be compared."""
    wrong: dict[str, str] = {}
    num_compared = 0
    for op in candidates(names, dtype)[::every]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(op, limit, dtype)
        except Unrunnable as error:
            print(f"{op.formatted_name}: {error}")
            continue
        except Exception as error:
            wrong[op.formatted_name] = "".join(traceback.format_exception_only(error)).strip()
        num_compared += 1
    return wrong, num_compared


def parsed(description: str | None, option: str, choices: Iterable[str], what: str) -> argparse.Namespace:
    """Read the arguments of a sweep, of which one option is its own and may be repeated."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--samples", type=int, default=SAMPLES, help="at most so many samples an operator")
    parser.add_argument("--every", type=int, default=1, help="take every so manyth operator only")
    parser.add_argument(option, choices=list(choices), action="append", help=f"{what}; may be repeated")
    parser.add_argument("names", nargs="*", help="operators; all if none is named")
    return parser.parse_args()


def main() -> int:
    """Sweep and report."""
    options = parsed(__doc__, "--dtype", DTYPES, "what the samples are of")
    return 1 if sum(report(options, dtype) for dtype in options.dtype or DTYPES[:1]) else 0


def report(options: argparse.Namespace, dtype: str) -> int:
    """Sweep the operators that take one dtype; return how many do not agree."""
    with virtual_gpus(1, random="cpu"):
        wrong, num_compared = sweep(options.names, options.samples, options.every, getattr(torch, dtype))
    for name, why in wrong.items():
        print(f"{name}: {' '.join(why.split())[:300]}")
    print(
        f"torch {torch.__version__}, {dtype}, forward and gradients, "
        f"up to {options.samples} samples an operator:"
    )
    print(f"{num_compared - len(wrong)} of {num_compared} operators agree")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
