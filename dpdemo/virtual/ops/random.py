"""Random operators: each virtual GPU draws CUDA's own numbers, from a stream of its own (see `drawing`).

With `random="cpu"` a GPU draws the numbers that the CPU would draw from the same seed, from a generator like
the CPU's: programs that compare results on a GPU with a CPU's need that.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dpdemo.virtual.cuda_random.distributions import ALIKE, DISTRIBUTIONS
from dpdemo.virtual.cuda_random.launch import NumberSource
from dpdemo.virtual.ops import listening
from dpdemo.virtual.patches.generators import kind_of_device, stream_of

if TYPE_CHECKING:
    from dpdemo.virtual.cuda_random.distributions import Distribution, Given
    from dpdemo.virtual.state import Session

_swapping = threading.Lock()
_USUAL_INCREMENT = 4


@functools.cache
def is_random(func: Any) -> bool:
    """Return whether `func` draws random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


class _Operator(NamedTuple):
    """A random operator: CUDA's way to draw for it, and its arguments' names and defaults."""

    draw: Distribution | None
    name: str
    arguments: tuple[tuple[str, Any], ...]

    @property
    def takes_generator(self) -> bool:
        return any(name == "generator" for name, _ in self.arguments)

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
        """Return the arguments of a call by their names."""
        named = {name: default for name, default in self.arguments if default is not None}
        named |= zip((name for name, _ in self.arguments), args, strict=False)
        return named | kwargs


@functools.cache
def _operator(func: Any) -> _Operator:
    name = func._schema.name.removeprefix("aten::")
    arguments = tuple((spec.name, spec.default_value) for spec in func._schema.arguments)
    return _Operator(DISTRIBUTIONS.get(name), name, arguments)


def run_random(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None
) -> Any:
    """Draw the numbers of `func`, and show them to listeners."""
    result = _run(session, func, args, kwargs, index)
    for listen in listening.draws:
        listen(func, result)
    return result


def _run(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None
) -> Any:
    """Run `func` with the numbers of GPU `index`, or with the CPU's if that is None.

    Raises:
        RuntimeError: a generator of another device was given.

    """
    operator = _operator(func)
    given = operator.given(args, kwargs)
    generator = given.get("generator")
    if generator is not None:
        _check_generator(generator, index)
    if index is None or given.get("dropout_p") == 0:  # attention that drops nothing draws nothing
        return func(*args, **kwargs)
    if generator is None:
        generator = session.generators[index]
    if session.draws_as_cpu:
        return _run_with(generator, operator, func, args, kwargs)
    stream = stream_of(generator)
    drawn = (
        NotImplemented if operator.draw is None else operator.draw(given, NumberSource(stream, session.card))
    )
    if drawn is NotImplemented:
        generator = stream.take(ALIKE.get(operator.name, _USUAL_INCREMENT)).cpu_generator()
        return _run_with(generator, operator, func, args, kwargs)
    return _stored(drawn, given)


def _check_generator(generator: torch.Generator, index: int | None) -> None:
    wanted, found = "cpu" if index is None else "cuda", kind_of_device(generator)
    if wanted != found:
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{found}'")


def _stored(result: Any, given: Given) -> Any:
    """Put `result` where `out=` says, as that tensor's dtype."""
    out = given.get("out")
    if out is None:
        return result
    torch.ops.aten.resize_.default(out, result.shape)
    return torch.ops.aten.copy_.default(out, result)


def _run_with(
    generator: torch.Generator, operator: _Operator, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run an operator with a generator of the CPU's kind."""
    if not operator.takes_generator:
        return _run_with_swapped_state(generator, func, args, kwargs)
    names = [name for name, _ in operator.arguments]
    place = names.index("generator")
    if place < len(args):
        args = (*args[:place], generator, *args[place + 1 :])
        return func(*args, **kwargs)
    return func(*args, **{**kwargs, "generator": generator})


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
