"""One record for each operator that needs special treatment on virtual GPUs.

`@on("run", op, why=...)` puts a function into a field of the records of some operators; `on(...)(value)` puts
a value there. `dispatch.choose` builds an operator's action from its record; `meta.py` reads it for shapes
and numbers.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.virtual.state import Session

    Action = Callable[[Session, Any, tuple[Any, ...], dict[str, Any]], Any]
    Said = TypeVar("Said")


@dataclasses.dataclass(slots=True)
class Special:
    """The ways in which one operator differs from "run it where its operands are"."""

    run: Action | None = None  # runs it, and labels its results
    on_gpu: Callable[..., Any] | None = None  # computes it on a GPU by operators that the CPU has
    # returns, for arguments without numbers, what the kernel for numbers would
    shape: Callable[..., Any] | None = None
    # takes it and its arguments, some of which are known, and returns what to run for the shape instead
    partly_known: Callable[..., Any] | None = None
    product: str | None = None  # it multiplies: the name of CUDA's kernel, which has no integers
    from_half: Callable[..., Any] | None = None  # computes it from float16 to float32
    alike: tuple[int, ...] | None = None  # the operands that must have the first one's dtype
    # takes its arguments, and returns the number that all elements of its result, or target, are
    fills: Callable[[tuple[Any, ...]], Any] | None = None
    # does so where the operands are not known; None if nothing can be told
    supposes: Callable[[tuple[Any, ...]], Any] | None = None
    is_unwritten: bool = False  # whether nothing has been written into what it makes
    overwrites: bool = False  # whether it reads nothing of its target
    writes: tuple[int, ...] = ()  # the operands that it writes without saying so in its schema
    is_same_of_one: bool = False  # whether it is, of many equal elements, what it is of one


NOTHING = Special()
records: dict[Any, Special] = {}


def special(func: Any) -> Special:
    """Return the record of an operator; do not write into it."""
    return records.get(func, NOTHING)


def on(field: str, *ops: Any, why: str) -> Callable[[Said], Said]:
    """Write what is decorated into a field of the records of `ops`; `why` is for readers."""
    del why

    def register(said: Said) -> Said:
        for op in ops:
            setattr(records.setdefault(op, Special()), field, said)
        return said

    return register
