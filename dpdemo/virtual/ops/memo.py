"""Shapes of results, remembered by operator and operands: PyTorch's kernels for them are slow Python.

A model's layers ask the same question over and over. A call's key holds all that a result's shape can depend
on; a call that cannot be put so is not remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.labels import flat_tensors, stamp_all
from dpdemo.virtual.ops.computed import effects_of, note_unknown
from dpdemo.virtual.ops.known import SHADOW

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpdemo.virtual.ops.special import Action
    from dpdemo.virtual.state import Session

_MOST_CALLS = 100_000
_Tensor = torch.Tensor
_PLAIN = (_Tensor, torch.nn.Parameter)
_empty: Any = torch._C._VariableFunctions.empty_strided
_META = torch.device("meta")
_WITHOUT_STORAGE = (KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)
_made: dict[Any, tuple[Any, ...] | Any] = {}
_operators: dict[int, Any] = {}
"""By its id, each operator among the keys: while it is here, no other one gets that id."""


class _Unknown(Exception):  # noqa: N818 - it ends a recursion
    """A value that no key can hold, or a result that no call can make again."""


def shapes_of(func: Any, run: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what `run`, which makes new tensors without numbers, returns for a call of `func`."""
    try:
        key = id(func), _key(args), _key(tuple(kwargs.items())), torch.get_default_dtype()
        found = _made.get(key)
    except (_Unknown, TypeError):
        return run(*args, **kwargs)
    if found is not None:
        return _again(found)
    result = run(*args, **kwargs)
    try:
        recipe = _recipe(result, {_storage(tensor) for tensor in flat_tensors((*args, *kwargs.values()))})
    except _Unknown:
        return result
    _remember(func, key, recipe)
    return result


def _remember(func: Any, key: Any, recipe: Any) -> None:
    _operators[id(func)] = func
    if len(_made) >= _MOST_CALLS:
        _made.clear()
    _made[key] = recipe


def target_of(func: Any, run: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the target of a pointwise call that writes into it; `run` sees to it that it has the shape."""
    place, name = effects_of(func).written[0]
    target = args[place] if place < len(args) else kwargs[name]
    try:
        key = id(func), _key(args), _key(tuple(kwargs.items()))
        if key in _made:
            return target
    except (_Unknown, TypeError):
        return run(*args, **kwargs)
    before = target.shape, target.untyped_storage().nbytes()
    result = run(*args, **kwargs)
    if result is target and before == (target.shape, target.untyped_storage().nbytes()):
        _remember(func, key, None)
    return result


def remembering(func: Any, run: Action) -> Action:
    """Return `run`, at less cost for a call like one before, on tensors of one GPU that know no numbers."""
    record = effects_of(func).special
    if record.partly_known is not None or not effects_of(func).makes_new:
        return run
    has_note = record.fills is not None or record.supposes is not None

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not session.is_meta or session.num_uncounted or kwargs.get("device") is not None:
            return run(session, func, args, kwargs)
        found = None
        try:
            index, operands = _key_on_gpu(session.key, args)
            found = _made.get((id(func), operands, _key(tuple(kwargs.items())), torch.get_default_dtype()))
        except (_Unknown, *_WITHOUT_STORAGE):
            pass  # an exception's frames refer to operands, whose references are counted below
        if found is None:
            return run(session, func, args, kwargs)
        result = _again(found)
        if has_note:
            note_unknown(func, args, result)
        stamp_all(result, session, index)
        return result

    return act


def _key_on_gpu(label_key: str, args: Sequence[Any]) -> tuple[int, Any]:
    """Return the GPU on which all tensors of a call are, and the key of its arguments."""
    index, key = None, []
    for arg in args:
        if type(arg) in _PLAIN:
            attributes = arg.untyped_storage().__dict__
            label = attributes[label_key]
            if SHADOW in attributes or arg.is_conj() or arg.is_neg():
                raise _Unknown
            there = label.index
            key.append((arg.shape, arg.stride(), arg.dtype))
        elif isinstance(arg, (list, tuple)) and arg and isinstance(arg[0], _Tensor):
            there, part = _key_on_gpu(label_key, arg)
            key.append(part)
        elif isinstance(arg, _Tensor):
            raise _Unknown
        else:
            key.append(_key(arg))
            continue
        if index is None:
            index = there
        elif index != there:
            raise _Unknown
    if index is None:
        raise _Unknown
    return index, tuple(key)


def _key(value: Any) -> Any:
    if isinstance(value, _Tensor):
        if value.layout is not torch.strided or value.is_conj() or value.is_neg():
            raise _Unknown
        return value.shape, value.stride(), value.dtype
    if isinstance(value, (list, tuple)):
        return tuple([_key(item) for item in value])
    return type(value), value  # 1, 1.0 and True are equal, and give other dtypes


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _recipe(result: Any, operands: set[int]) -> Any:
    """Return how to make a result again: of a tensor, which shares no memory, its size, strides and dtype."""
    if result is None:
        return ()
    if isinstance(result, (list, tuple)) and type(result) in (list, tuple):
        return type(result), [_recipe(item, operands) for item in result]
    is_plain = type(result) is _Tensor and result.layout is torch.strided and not result.storage_offset()
    if not is_plain or _storage(result) in operands:
        raise _Unknown
    made = _empty(result.shape, result.stride(), dtype=result.dtype, device=_META)
    if made.untyped_storage().nbytes() != result.untyped_storage().nbytes():  # it keeps more than it shows
        raise _Unknown
    return result.shape, result.stride(), result.dtype


def _again(recipe: Any) -> Any:
    if len(recipe) == 3:
        size, strides, dtype = recipe
        return _empty(size, strides, dtype=dtype, device=_META)
    return recipe[0](map(_again, recipe[1])) if recipe else None
