"""Operators on lists of tensors (`torch._foreach_add`), which optimizers use.

Tensors on several devices CUDA goes through one by one (`can_use_fast_route`, native/ForeachUtils.h): each
must agree with its own operands alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.labels import gpu_of

if TYPE_CHECKING:
    from dpdemo.virtual.state import Session

_ONE_BY_ONE = torch._C.DispatchKey.CompositeExplicitAutograd


def is_on_lists(func: Any) -> bool:
    """Return whether an operator takes lists of tensors, one for each operand."""
    return bool(func.name().startswith("aten::_foreach_"))


def one_by_one_where_mixed(together: Any, seen: Any) -> Any:
    """Build what such an operator takes: `together`, unless its tensors are on several devices.

    `seen` makes the context in which the operators on single tensors are seen.
    """

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return together(session, func, args, kwargs)
        except RuntimeError:
            if session.is_meta or len({gpu_of(session, tensor) for tensor in args[0]}) < 2:
                raise
        with seen(session):
            return func._op_dk(_ONE_BY_ONE, *args, **kwargs)

    return act
