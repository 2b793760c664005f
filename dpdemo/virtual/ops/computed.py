"""Meta storage: compute the operators whose operands are known.

`meta.py` asks `effects_of` what an operator does, runs it for its shapes, and comes here for the
numbers (`known.py` says for which tensors they are kept, and where).
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dpdemo.virtual.labels import flat_tensors
from dpdemo.virtual.ops.known import (
    LARGEST,
    element_of,
    forget,
    is_small,
    know,
    know_all_equal,
    make_writable,
    numbers_of,
    remember,
)
from dpdemo.virtual.ops.random import is_random, run_random

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dpdemo.virtual.state import Session

    Known = tuple[list[Any], dict[str, Any]]  # a call's arguments, with numbers for every tensor

aten = torch.ops.aten
_LARGEST_DRAW = 2**20  # bytes of random numbers; drawing more takes long, and few are looked at
_Tensor = torch.Tensor
_is_meta: Any = torch._C.TensorBase.is_meta

# All elements of the result are one number, whatever the operands' are; this says which.
FILLED: dict[Any, Callable[[tuple[Any, ...]], Any]] = {
    aten.zeros.default: lambda _: 0,
    aten.ones.default: lambda _: 1,
    aten.full.default: lambda args: args[1],
    aten.zeros_like.default: lambda _: 0,
    aten.ones_like.default: lambda _: 1,
    aten.full_like.default: lambda args: args[1],
    aten.new_zeros.default: lambda _: 0,
    aten.new_ones.default: lambda _: 1,
    aten.new_full.default: lambda args: args[2],
    aten.scalar_tensor.default: lambda args: args[0],
}
# Numbers that are not known are taken to be finite, as in a training step that goes well.
_IF_FINITE = {
    aten.isnan.default: False,
    aten.isinf.default: False,
    aten.isposinf.default: False,
    aten.isneginf.default: False,
}
_OF_ITSELF = {aten.eq.Tensor: True, aten.ne.Tensor: False}  # x == x, as `isfinite` asks
_OF_INFINITY = {aten.eq.Scalar: False, aten.ne.Scalar: True}
_FOUND_INFINITY = aten._amp_foreach_non_finite_check_and_unscale_.default  # gradients are finite too
# Nothing has been written into what these make.
UNWRITTEN = frozenset(
    {
        *(aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default),
        *(aten.new_empty.default, aten.new_empty_strided.default, aten.empty_permuted.default),
    }
)
_FILLING = frozenset({aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default})
# These read nothing of the tensor that they write.
_OVERWRITING = _FILLING | {aten.copy_.default, aten.random_.default, aten.random_.to}
# These write without saying so in their schema: running statistics (native/native_functions.yaml).
_UNSAID = {
    aten.native_batch_norm.default: (3, 4),
    aten.cudnn_batch_norm.default: (3, 4),
    aten.batch_norm_update_stats.default: (1, 2),
}
# Of many equal elements these are what they are of one.
_SAME_OF_ONE = frozenset(
    {
        *(aten.all.default, aten.all.dim, aten.all.dims, aten.any.default, aten.any.dim, aten.any.dims),
        *(aten.amax.default, aten.amin.default, aten.max.default, aten.min.default),
    }
)


class Effects(NamedTuple):
    """The effects of an operator on its operands, by its schema."""

    written: tuple[tuple[int, str], ...]  # the arguments that it writes: where they stand, and their names
    is_view: bool  # whether its results are views, which see what their base knows
    needs_numbers: bool  # whether its result is no tensor, or of a shape that depends on numbers


@functools.cache
def effects_of(func: Any) -> Effects:
    """Return what `func` does to its operands."""
    schema = func._schema
    written = [(place, spec.name) for place, spec in enumerate(schema.arguments) if spec.is_write] + [
        (place, schema.arguments[place].name) for place in _UNSAID.get(func, ())
    ]
    aliases = [spec.alias_info for spec in schema.returns]
    is_view = not written and bool(aliases) and all(aliases)
    tags = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
    gives_tensors = not schema.returns or all("Tensor" in str(spec.type) for spec in schema.returns)
    return Effects(tuple(written), is_view, not gives_tensors or any(tag in func.tags for tag in tags))


def targets(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that a call writes."""
    written = effects_of(func).written
    values = [args[place] if place < len(args) else kwargs.get(name) for place, name in written]
    return list(flat_tensors(values))


class _Unknown(Exception):  # noqa: N818 - it leaves a recursion, nobody sees it
    """An operand's numbers are not known."""


def known_operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Known | None:
    """Return a call's arguments with numbers for every tensor, or None if some are not known."""
    try:
        numbers = [_numbers_in(arg) for arg in args]
        named = {name: _numbers_in(value) for name, value in kwargs.items()}
    except _Unknown:
        return None
    if named.get("device") is not None:
        named["device"] = torch.device("cpu")
    return numbers, named


def _numbers_in(value: Any) -> Any:
    if isinstance(value, _Tensor):
        numbers = numbers_of(value)
        if numbers is None:
            raise _Unknown
        return numbers
    if isinstance(value, (list, tuple)):
        return [_numbers_in(item) for item in value]
    return value


def note_unknown(func: Any, args: tuple[Any, ...], result: Any) -> None:
    """Note what is known of the result of an operator although its operands are not all known."""
    if func in FILLED:
        know_all_equal(result, FILLED[func](args))
    elif func in _IF_FINITE:
        know_all_equal(result, _IF_FINITE[func])
    elif func in _OF_ITSELF and args[0] is args[1]:
        know_all_equal(result, _OF_ITSELF[func])
    elif func in _OF_INFINITY and isinstance(args[1], float) and not math.isfinite(args[1]):
        know_all_equal(result, _OF_INFINITY[func])


def write(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None
) -> tuple[Any, ...]:
    """Run a call that writes on its operands' numbers: (its result,), or () where these are not known.

    What is written is known afterwards, or forgotten.
    """
    if func in _OVERWRITING and _is_whole(args[0]):
        if func in _FILLING and _is_meta.__get__(args[0]):
            return _fill(args)
        if numbers_of(args[0]) is None:
            remember(args[0])
    known = known_operands(args, kwargs)
    if known is None or not all(map(make_writable, targets(func, args, kwargs))):
        _forget_written(func, args, kwargs)
        return ()
    known = known_operands(args, kwargs) or known  # a target has a place for each element now
    return (_run(session, func, *known, index),)


def _is_whole(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has all of its storage."""
    if tensor.layout is not torch.strided:
        return False
    return tensor.is_contiguous() and tensor.nbytes == tensor.untyped_storage().nbytes()


def _fill(args: tuple[Any, ...]) -> tuple[Any, ...]:
    value = args[1] if len(args) > 1 else 0
    if isinstance(value, _Tensor):
        value = numbers_of(value)
    if value is None:
        forget(args[0])
        return ()
    know_all_equal(args[0], value)
    return (None,)


def _forget_written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for target in targets(func, args, kwargs):
        if func is not _FOUND_INFINITY or target is not args[1]:
            forget(target)


def _run(session: Session, func: Any, args: list[Any], kwargs: dict[str, Any], index: int | None) -> Any:
    if is_random(func):
        return run_random(session, func, tuple(args), kwargs, index)
    return func(*args, **kwargs)


def compute(session: Session, func: Any, known: Known, index: int | None) -> Any:
    """Run an operator whose result depends on numbers in its shape, or is no tensor: on the numbers alone."""
    return _without_storage(_run(session, func, *known, index))


def _without_storage(result: Any) -> Any:
    """Make tensors without storage that know the numbers of `result`."""
    if isinstance(result, _Tensor):
        made = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="meta")
        know(made, result)
        return made
    if isinstance(result, (list, tuple)):
        return type(result)(_without_storage(item) for item in result)
    return result


def note_computed(
    session: Session, call: tuple[Any, Any], known: Known, index: int | None, result: Any
) -> None:
    """Compute the numbers of `result`, which was run for its shapes alone, if they may be kept."""
    func, args = call
    made = list(flat_tensors((result,)))
    if not made:
        return
    ones = _as_one_element(func, args)
    if ones is not None and len(made) == 1:
        know_all_equal(made[0], func(*ones, **known[1]).reshape(-1)[0])
        return
    is_drawn = is_random(func) and any(tensor.nbytes > _LARGEST_DRAW for tensor in made)
    is_too_much = any(tensor.nbytes > LARGEST for tensor in _operands(known))  # one element repeated
    if is_drawn or is_too_much or not all(map(is_small, made)):
        return
    try:
        numbers = list(flat_tensors((_run(session, func, *known, index),)))
    except (NotImplementedError, RuntimeError):
        return  # the CPU has no kernel for this dtype
    operands = {tensor.untyped_storage().data_ptr() for tensor in _operands(known)}
    for tensor, value in zip(made, numbers, strict=True):
        # what is known already is a view of an operand; CUDA's kernel may make another shape (`shapes.py`)
        if numbers_of(tensor) is None and tensor.shape == value.shape:
            is_shared = value.untyped_storage().data_ptr() in operands
            know(tensor, value.clone() if is_shared else value)


def _operands(known: Known) -> Iterator[torch.Tensor]:
    return flat_tensors((*known[0], *known[1].values()))


def _as_one_element(func: Any, args: tuple[Any, ...]) -> list[Any] | None:
    """Return the arguments with one element for each tensor, if the result is then one element repeated."""
    is_reduced = func in _SAME_OF_ONE
    if not is_reduced and torch.Tag.pointwise not in func.tags:
        return None
    ones: list[Any] = []
    for arg in args:
        if not isinstance(arg, _Tensor):
            ones.append(arg)
            continue
        element = element_of(arg)
        if element is None or (is_reduced and not arg.numel()):
            return None
        ones.append(element.reshape((1,) * arg.dim()))
    return ones if any(isinstance(arg, _Tensor) for arg in args) and not is_random(func) else None
