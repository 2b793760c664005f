"""Meta storage: compute the operators whose operands are known.

`meta.py` asks `effects_of` what an operator does, runs it for its shapes, and comes here for the
numbers (`known.py` says for which tensors they are kept, and where).
"""

from __future__ import annotations

import functools
import math
import operator
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
from dpdemo.virtual.ops.special import Special, on, special

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.virtual.state import Session

    Known = tuple[list[Any], dict[str, Any]]  # a call's arguments, with numbers for every tensor

aten: Any = torch.ops.aten
_LARGEST_DRAW = 2**20  # bytes of random numbers; drawing more takes long, and few are looked at
_Tensor = torch.Tensor
_is_meta: Any = torch._C.TensorBase.is_meta
_FOUND_INFINITY = aten._amp_foreach_non_finite_check_and_unscale_.default  # gradients are finite too
_ONE = "all elements of what it makes or writes are one number, whatever the operands' are"
_FINITE = "numbers that are not known are taken to be finite, as in a training step that goes well"

for _op in (aten.zeros, aten.zeros_like, aten.new_zeros, aten.zero_):
    on("fills", _op.default, why=_ONE)(lambda _: 0)
for _op in (aten.ones, aten.ones_like, aten.new_ones):
    on("fills", _op.default, why=_ONE)(lambda _: 1)
on("fills", aten.scalar_tensor.default, why=_ONE)(operator.itemgetter(0))
for _op in (aten.full.default, aten.full_like.default, aten.fill_.Scalar, aten.fill_.Tensor):
    on("fills", _op, why=_ONE)(operator.itemgetter(1))
on("fills", aten.new_full.default, why=_ONE)(operator.itemgetter(2))
for _op in (aten.isnan, aten.isinf, aten.isposinf, aten.isneginf):
    on("supposes", _op.default, why=_FINITE)(lambda _: False)
for _equal, _value in ((aten.eq, True), (aten.ne, False)):
    on("supposes", _equal.Tensor, why="x == x, as `isfinite` asks")(
        lambda args, value=_value: value if args[0] is args[1] else None
    )
    on("supposes", _equal.Scalar, why=_FINITE)(
        lambda args, value=_value: not value if _is_infinite(args[1]) else None
    )
on(
    "is_unwritten",
    *(aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default),
    *(aten.new_empty.default, aten.new_empty_strided.default, aten.empty_permuted.default),
    why="nothing has been written into what it makes",
)(True)
on(
    "overwrites",
    *(aten.copy_.default, aten.random_.default, aten.random_.to),
    why="it reads nothing of the tensor that it writes",
)(True)
_STATISTICS = "it writes running statistics without saying so in its schema (native/native_functions.yaml)"
on("writes", aten.native_batch_norm.default, aten.cudnn_batch_norm.default, why=_STATISTICS)((3, 4))
on("writes", aten.batch_norm_update_stats.default, why=_STATISTICS)((1, 2))
on(
    "is_same_of_one",
    *(aten.all.default, aten.all.dim, aten.all.dims, aten.any.default, aten.any.dim, aten.any.dims),
    *(aten.amax.default, aten.amin.default, aten.max.default, aten.min.default),
    why="of many equal elements it is what it is of one",
)(True)


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


class Effects(NamedTuple):
    """The effects of an operator on its operands, by its schema."""

    written: tuple[tuple[int, str], ...]  # the arguments that it writes: where they stand, and their names
    is_view: bool  # whether its results are views, which see what their base knows
    needs_numbers: bool  # whether its result is no tensor, or of a shape that depends on numbers
    makes_new: bool  # whether all results are new tensors, whose shapes depend on the call alone
    gives_target: bool  # whether it is pointwise, and its result is the one tensor that it writes
    special: Special


@functools.cache
def effects_of(func: Any) -> Effects:
    """Return what `func` does to its operands."""
    schema, record = func._schema, special(func)
    written = [(place, spec.name) for place, spec in enumerate(schema.arguments) if spec.is_write] + [
        (place, schema.arguments[place].name) for place in record.writes
    ]
    aliases = [spec.alias_info for spec in schema.returns]
    is_view = not written and bool(aliases) and all(aliases)
    tags = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
    gives_tensors = not schema.returns or all("Tensor" in str(spec.type) for spec in schema.returns)
    needs_numbers = not gives_tensors or any(tag in func.tags for tag in tags)
    shares = any(aliases) or any(spec.alias_info is not None for spec in schema.arguments)
    makes_new = not (written or needs_numbers or shares) and schema.name.startswith("aten::")
    is_pointwise = torch.Tag.pointwise in func.tags and record.shape is None
    gives_target = is_pointwise and len(written) == len(aliases) == 1 and aliases[0] is not None
    return Effects(tuple(written), is_view, needs_numbers, makes_new, gives_target, record)


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
    record = effects_of(func).special
    tell = record.fills or record.supposes
    number = None if tell is None else tell(args)
    if number is not None:
        know_all_equal(result, number)


def write(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None
) -> tuple[Any, ...]:
    """Run a call that writes on its operands' numbers: (its result,), or () where these are not known.

    What is written is known afterwards, or forgotten.
    """
    record = effects_of(func).special
    if (record.overwrites or record.fills is not None) and _is_whole(args[0]):
        if record.fills is not None and _is_meta.__get__(args[0]):
            return _fill(args[0], record.fills(args))
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


def _fill(target: torch.Tensor, value: Any) -> tuple[Any, ...]:
    if isinstance(value, _Tensor):
        value = numbers_of(value)
    if value is None:
        forget(target)
        return ()
    know_all_equal(target, value)
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
    is_reduced = effects_of(func).special.is_same_of_one
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
