"""Where an operator runs: on the one GPU that its operands are on, or on the CPU.

These loops are much of what an operator costs: they are written out, and everything rare is left to
`mismatch.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.labels import label_of
from dpdemo.virtual.ops.mismatch import check_cpu_operands, device_clash
from dpdemo.virtual.ops.provenance import made_by_cpp

if TYPE_CHECKING:
    from dpdemo.virtual.state import Session

_Tensor = torch.Tensor
WITHOUT_STORAGE = (NotImplementedError, RuntimeError, ValueError)


def common_gpu(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Return the GPU of all operands, or None if all are on the CPU."""
    return place(session, func, args, kwargs)[0]


def place(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[int | None, bool]:
    """Return the GPU of all operands, or None if all are on the CPU and whether all of these are C++'s own.

    Raises:
        RuntimeError: they are on two devices.

    """
    index, cpu_operands = survey(session, func, args, kwargs)
    # Only now: while `survey` runs, its own variables would count as references to the operands.
    if cpu_operands and index is not None:
        check_cpu_operands(session, func, args, kwargs)
    return index, index is None and (not cpu_operands or all(made_by_cpp(session, args, kwargs)))


def survey(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[int | None, int]:
    """Return the GPU of the operands that are on one, and what is on the CPU: 0 for nothing, 1 for numbers.

    (A number is a tensor without dimensions, as Python's own become. With any other tensor it is 2 or 3.)
    """
    key = session.key
    index = None
    cpu_operands = 0
    for arg in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(arg, _Tensor):
            try:
                label = arg.untyped_storage().__dict__.get(key)
            except WITHOUT_STORAGE:
                label = label_of(arg, key)
            if label is None:
                cpu_operands |= 2 if arg.dim() else 1
            elif index is None:
                index = label.index
            elif index != label.index:
                raise device_clash(session, func, args, kwargs)
        elif (type(arg) is list or type(arg) is tuple) and arg and type(arg[0]) is not int:
            there, on_cpu = _survey_list(session, func, arg, args, kwargs)
            cpu_operands |= on_cpu
            if there is not None and index is not None and there != index:
                raise device_clash(session, func, args, kwargs)
            index = there if index is None else index
    return index, cpu_operands


def _survey_list(
    session: Session, func: Any, items: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[int | None, int]:
    """Survey a list among the operands `args`, which an error describes."""
    key = session.key
    index = None
    cpu_operands = 0
    for item in items:
        if isinstance(item, _Tensor):
            label = label_of(item, key)
            if label is None:
                cpu_operands |= 2 if item.dim() else 1
            elif index is None:
                index = label.index
            elif index != label.index:
                raise device_clash(session, func, args, kwargs)
    return index, cpu_operands
