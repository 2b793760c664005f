"""Write every operator's results into `out=` on a virtual GPU and on the plain CPU (run this file).

PyTorch's own samples are run with four kinds of `out`: empty, of the right size, of a wrong size, and
strided. The numbers, shapes, dtypes and devices that are left in it must agree, as must errors. It prints
one line for each operator that differs, and how many agree. Arguments, if any, choose operators by name.
"""

import operator
import sys
import types
import warnings
from typing import Any

import torch
from opinfo_sweep import UNINITIALISED, candidates, fresh, tensors_of
from torch.utils._pytree import tree_map_only

from dpdemo.virtual import virtual_gpus

SAMPLES = 2
SPARSE = {"sparse.sampled_addmm"}  # an `out` of another size cannot be made
_UNWRITTEN = 77


def empty(expected: torch.Tensor) -> torch.Tensor:
    """Return an `out` without elements, which the operator must resize."""
    return expected.new_empty(0)


def right_size(expected: torch.Tensor) -> torch.Tensor:
    """Return an `out` of the right size, filled with a number that must not stay."""
    return torch.full_like(expected, _UNWRITTEN)


def wrong_size(expected: torch.Tensor) -> torch.Tensor:
    """Return an `out` of a wrong size, which PyTorch resizes with a warning, or refuses."""
    return expected.new_full((*expected.shape, 2), _UNWRITTEN)


def strided(expected: torch.Tensor) -> torch.Tensor:
    """Return an `out` of the right size whose elements lie apart."""
    return expected.new_full((*expected.shape, 2), _UNWRITTEN)[..., 0]


KINDS = (empty, right_size, wrong_size, strided)


def written(op: Any, sample: Any, kind: Any, device: str) -> list[torch.Tensor] | type[Exception]:
    """Return what an operator leaves in `out` on a device, or the type of its error."""
    if isinstance(op.op, types.BuiltinFunctionType) and op.op is not getattr(torch.Tensor, op.name, None):
        op = operator.attrgetter(op.name)(torch)  # as a program finds it inside a block
    torch.manual_seed(0)
    with torch.no_grad():
        given, args, kwargs = (fresh(part, device) for part in (sample.input, sample.args, sample.kwargs))
        expected = op(given, *args, **kwargs)
        out = tree_map_only(torch.Tensor, kind, expected)
        given, args, kwargs = (fresh(part, device) for part in (sample.input, sample.args, sample.kwargs))
        try:
            torch.manual_seed(0)
            result = op(given, *args, **kwargs, out=out)
        except (RuntimeError, TypeError, ValueError) as error:
            return RuntimeError if isinstance(error, RuntimeError) else type(error)
    for tensor, returned in zip(tensors_of(out), tensors_of(result), strict=False):
        assert tensor.device == torch.device(device), "`out` is elsewhere"
        assert returned.data_ptr() == tensor.data_ptr(), "`out` is not what is returned"
    return [tensor.cpu() for tensor in tensors_of(out)]


def differences(op: Any, limit: int) -> list[str]:
    """Return how an operator's `out` differs between the CPU and a virtual GPU."""
    found = []
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=False)
    for number, sample in zip(range(limit), samples, strict=False):
        for kind in KINDS:
            theirs = written(op, sample, kind, "cpu")  # outside a block: any dispatch mode changes C++
            with virtual_gpus(1, random="cpu"):
                ours = written(op, sample, kind, "cuda:0")
            if not isinstance(theirs, list) or not isinstance(ours, list):
                if theirs != ours:
                    found.append(f"sample {number}, {kind.__name__}: {ours}, {theirs} expected")
                continue
            for mine, other in zip(ours, theirs, strict=True):
                is_same = mine.shape == other.shape and mine.dtype == other.dtype
                if not is_same or not torch.allclose(mine, other, rtol=1e-4, atol=1e-5, equal_nan=True):
                    found.append(f"sample {number}, {kind.__name__}: {mine}, {other} expected")
    return found


def main() -> int:
    """Sweep and report."""
    num_agreed = num_wrong = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in candidates(sys.argv[1:]):
            if not op.supports_out or op.name in UNINITIALISED | SPARSE:
                continue
            try:
                found = differences(op, SAMPLES)
            except Exception as error:
                found = [f"{type(error).__name__}: {error}"]
            num_wrong += bool(found)
            num_agreed += not found
            for line in found[:3]:
                print(f"{op.formatted_name}: {' '.join(line.split())[:300]}")
    print(f"{num_agreed} of {num_agreed + num_wrong} operators agree")
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
