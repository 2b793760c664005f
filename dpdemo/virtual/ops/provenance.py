"""The maker of a CPU tensor: the user, or C++ inside a composite operator.

C++ takes every tensor for a CPU tensor, so what it makes itself beside a tensor on a GPU ("an empty tensor
like self", "the list of indices as a tensor") it makes on the CPU, where CUDA's build would make it on the
GPU. Beside operands on a GPU those must be let through; a user's own CPU tensor must not, nor anything that
C++ derived from one (`F.linear` reshapes its input, `einsum` copies it).

Two things tell them apart. What an operator makes of nothing, or of C++'s own tensors alone, is marked as
C++'s on its storage: whatever has no mark is the user's, so that a user's CPU tensors cost nothing. And no
Python variable ever held a tensor of C++'s own: its Python object was made for this very call, so nothing but
the call's arguments refers to it, and its reference count is the smallest there can be. A marked tensor that
Python holds is the user's from then on.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dpdemo.virtual.labels import flat_tensors, notes_of

if TYPE_CHECKING:
    from dpdemo.virtual.state import Session

_Tensor = torch.Tensor
_CALL = torch._ops.OpOverload.__call__.__code__


def reference_counts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[bool, int]]:
    """Return, for each tensor operand in order, whether it stands in a list, and its reference count."""
    counts = []
    for arg in (*args, *kwargs.values()):
        if isinstance(arg, _Tensor):
            counts.append((False, sys.getrefcount(arg)))
        elif isinstance(arg, (list, tuple)):
            counts.extend([(True, sys.getrefcount(item)) for item in arg if isinstance(item, _Tensor)])
    return counts


class _Probe(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the reference counts of the operands of `lift_fresh` and `index`, which C++ makes from a list."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.least: dict[bool, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from importing torch._dynamo (about a second)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for in_list, count in reference_counts(args, kwargs or {}):
            self.least[in_list] = min(count, self.least.get(in_list, count))
        return func(*args, **(kwargs or {}))


class _Above(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A program's own mode at its simplest, such as one that counts operators."""

    _should_skip_dynamo = _Probe._should_skip_dynamo

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@functools.cache
def _least_references(num_above: int = 0) -> dict[bool, int]:
    """Measure the reference counts of tensors that only C++ holds; they depend on Python and on PyTorch.

    Args:
        num_above: how many modes of the program's saw the operator first: each refers to its operands too.

    """
    row = torch.zeros(2, device="cpu")
    probe = _Probe()
    with contextlib.ExitStack() as modes:
        modes.enter_context(probe)
        for _ in range(num_above):
            modes.enter_context(_Above())  # type: ignore[no-untyped-call]
        row[[0, 1]]
    return probe.least


def _num_modes_above() -> int:
    """Count the modes of the program's that saw the operator under way before ours: they called it."""
    number, frame = -1, sys._getframe(1)  # the first one met is ours
    while frame is not None:
        if frame.f_code.co_name == "__torch_dispatch__":
            number += 1
        elif number >= 0 and frame.f_code is not _CALL:
            break
        frame = frame.f_back  # type: ignore[assignment]
    return max(number, 0)


def made_by_cpp(session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[bool]:
    """Return, for each tensor operand in order, whether C++ made it, and not from a user's CPU tensor."""
    least = _least_references(_num_modes_above())
    unheld = [count <= least[in_list] for in_list, count in reference_counts(args, kwargs)]
    return [
        _is_cpps(operand, session.host_key, is_unheld)
        for is_unheld, operand in zip(unheld, flat_tensors((*args, *kwargs.values())), strict=True)
    ]


def _is_cpps(tensor: torch.Tensor, key: str, is_unheld: bool) -> bool:
    if is_unheld:
        return bool(notes_of(tensor).get(key, not tensor.dim()))  # numbers become tensors out of sight
    notes_of(tensor).pop(key, None)
    return False


def note_cpps(session: Session, result: Any) -> None:
    """Mark the tensors of a result as C++'s own."""
    for tensor in flat_tensors(result):
        notes_of(tensor).setdefault(session.host_key, True)


def note_users(session: Session, tensor: torch.Tensor) -> None:
    """Note that a tensor is a user's, or written with what is."""
    notes_of(tensor).pop(session.host_key, None)


def note_hosts(session: Session, tensor: torch.Tensor) -> None:
    """Note that a tensor is on the host, though C++ made it and views it."""
    notes_of(tensor)[session.host_key] = False
