"""Find the operators that CUDA refuses for their dtype and the CPU runs (run this file; about a minute).

PyTorch's own operator tests tell for which dtypes a function is expected to run on the CPU and CUDA. Behind
one that CUDA refuses is an operator that no accepted sample calls with that dtype: those are printed, and
the exit code is 1 if `dpdemo/virtual/ops/refusals.py` lacks one.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import sys
import warnings
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from dpdemo.virtual import virtual_gpus
from dpdemo.virtual.ops.refusals import DTYPES

SAMPLES = 6
SWEPT = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.complex64),
)
# Found beside those that refuse: what is only called on the way to them, or made of others.
BYSTANDERS = {"_trilinear", "native_dropout_backward", "squeeze_"}


class Log(TorchDispatchMode):
    """Notes which operators run, with the dtype of the first operand."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, torch.dtype]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands = [leaf.dtype for leaf in tree_flatten(args)[0] if isinstance(leaf, torch.Tensor)]
        if operands:
            self.seen.add((func._schema.name.removeprefix("aten::"), operands[0]))
        return func(*args, **(kwargs or {}))


def behind(op: Any, dtype: torch.dtype) -> set[tuple[str, torch.dtype]]:
    """Return the operators that samples of `op` run on the CPU."""
    seen = set()
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES):
        with Log() as log, contextlib.suppress(Exception):  # what ran before it is noted
            op(sample.input, *sample.args, **sample.kwargs)
        seen |= log.seen
    return seen


def refused() -> dict[str, set[torch.dtype]]:
    """Return what CUDA refuses: the dtypes of each operator."""
    with virtual_gpus(1):  # PyTorch's lists depend on what the GPU can do
        from torch.testing._internal.common_methods_invocations import op_db

        kinds = [(op, set(op.supported_dtypes("cpu")), set(op.supported_dtypes("cuda"))) for op in op_db]
    accepted = set()
    for (op, cpu, cuda), dtype in itertools.product(kinds, SWEPT):
        if dtype in cpu & cuda:
            accepted |= behind(op, dtype)
    found = collections.defaultdict(set)
    for (op, cpu, cuda), dtype in itertools.product(kinds, SWEPT):
        if dtype in cpu - cuda:
            for name, operand in behind(op, dtype) - accepted:
                if operand == dtype and name not in BYSTANDERS:
                    found[name].add(dtype)
    return found


def main() -> int:
    """Sweep and report."""
    missing = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = refused()
    for name, dtypes in sorted(found.items()):
        known = dtypes <= DTYPES.get(name, (frozenset(), ""))[0]
        missing += not known
        print(f"{name}: {', '.join(sorted(map(str, dtypes)))}{'' if known else '  MISSING'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
