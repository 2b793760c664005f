"""Random operators: each virtual GPU draws from a generator of its own, as each GPU does.

`torch.manual_seed(s)` seeds all of them with s, so every GPU then draws the numbers that the CPU would draw
from that seed. (A real GPU's generator is another algorithm: its numbers differ from the CPU's, from the same
seed.)
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import wrong_generator
from dpdemo.virtual.generators import kind_of_device

if TYPE_CHECKING:
    from dpdemo.virtual.state import Session

_swapping = threading.Lock()


@functools.cache
def is_random(func: Any) -> bool:
    """Tell whether `func` draws random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


@functools.cache
def _takes_generator(func: Any) -> bool:
    return any(spec.name == "generator" for spec in func._schema.arguments)


def run_random(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None
) -> Any:
    """Run `func` with the generator of GPU `index`, or with the CPU's if that is None.

    Raises:
        RuntimeError: a generator of another device was given.

    """
    given = _given_generator(func, args, kwargs)
    if given is not None:
        _check_generator(given, index)
        return func(*args, **kwargs)
    if index is None:
        return func(*args, **kwargs)
    generator = session.generators[index]
    if _takes_generator(func):
        return func(*args, **{**kwargs, "generator": generator})
    return _run_with_swapped_state(generator, func, args, kwargs)


def _given_generator(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Generator | None:
    given = kwargs.get("generator")
    if given is None and _takes_generator(func):
        given = next((arg for arg in args if isinstance(arg, torch._C.Generator)), None)
    return given


def _check_generator(generator: torch.Generator, index: int | None) -> None:
    wanted, found = "cpu" if index is None else "cuda", kind_of_device(generator)
    if wanted != found:
        raise wrong_generator(wanted, found)


def _run_with_swapped_state(
    generator: torch.Generator, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run an operator that can only draw from the CPU's default generator, and leave that as it was."""
    with _swapping:
        default = torch.default_generator
        saved = default.get_state()
        default.set_state(generator.get_state())
        try:
            return func(*args, **kwargs)
        finally:
            generator.set_state(default.get_state())
            default.set_state(saved)
