"""The one survey of an operator's operands: which GPU they are on, and which of them are on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import two_devices
from dpdemo.virtual.labels import label_of
from dpdemo.virtual.ops.mismatch import compares_all, device_clash, is_without_data, operands_of
from dpdemo.virtual.ops.provenance import made_by_cpp

if TYPE_CHECKING:
    from dpdemo.virtual.state import Session

_Tensor = torch.Tensor
_WITHOUT_STORAGE = (NotImplementedError, RuntimeError, ValueError)
NUMBER, USERS = 1, 4
"""Bits of a survey: a CPU tensor without dimensions (2: with), and one that the user made."""


def survey(  # noqa: C901 - written out, for speed
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], listed: Any = None
) -> tuple[int | None, int]:
    """Return the GPU of the operands that are on one, and the bits of those on the CPU.

    A list among the operands is surveyed as `listed`. This loop is much of what an operator costs.

    Raises:
        RuntimeError: they are on two GPUs.

    """
    key, host_key = session.key, session.host_key
    index, on_cpu = None, 0
    for arg in listed or ((*args, *kwargs.values()) if kwargs else args):
        if isinstance(arg, _Tensor):
            try:
                attributes = arg.untyped_storage().__dict__
                label = attributes.get(key)
                if label is None and host_key not in attributes:
                    on_cpu |= 4  # USERS
            except _WITHOUT_STORAGE:
                label = label_of(arg, key)
            if label is None:
                on_cpu |= 2 if arg.dim() else 1  # NUMBER
            elif index is None:
                index = label.index
            elif index != label.index:
                raise device_clash(session, func, args, kwargs)
        elif (type(arg) is list or type(arg) is tuple) and arg and type(arg[0]) is not int:
            there, also_on_cpu = survey(session, func, args, kwargs, arg)
            on_cpu |= also_on_cpu
            if index is None:
                index = there
            elif there is not None and there != index:
                raise device_clash(session, func, args, kwargs)
    return index, on_cpu


def place(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[int | None, bool]:
    """Return the GPU of all operands, or None if all are on the CPU and whether C++ made all of these.

    Raises:
        RuntimeError: they are on two devices.

    """
    index, on_cpu = survey(session, func, args, kwargs)
    # Only now: while `survey` runs, its own variables would count as references to the operands.
    if on_cpu and index is not None:
        check_cpu_operands(session, func, args, kwargs)
    return index, index is None and (not on_cpu or all(made_by_cpp(session, args, kwargs)))


def common_gpu(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Return the GPU of all operands, or None if all are on the CPU."""
    return place(session, func, args, kwargs)[0]


def check_cpu_operands(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Check the CPU operands of an operator on a GPU.

    A CPU tensor may join only if it has no dimensions, or if C++ made it (see `provenance.py`).

    Raises:
        RuntimeError: a user's CPU tensor with dimensions is among them, or a CPU tensor would be written.

    """
    from_cpp = made_by_cpp(session, args, kwargs)
    written = {spec.name for spec in func._schema.arguments if spec.is_write}
    for is_cpps, (name, operand) in zip(from_cpp, operands_of(func, args, kwargs), strict=True):
        if label_of(operand, session.key) is not None:
            continue
        if operand.dim() == 0 and name in written and not is_cpps:
            labels = (label_of(other, session.key) for _, other in operands_of(func, args, kwargs))
            gpu = next(session.devices[label.index] for label in labels if label is not None)
            raise two_devices(gpu, operand.device)
        if is_without_data(session, operand) and torch.Tag.pointwise not in func.tags:
            continue
        if (operand.dim() or compares_all(func)) and not is_cpps:
            raise device_clash(session, func, args, kwargs)
