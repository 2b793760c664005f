"""Copies of values that later changes cannot reach, and how two of them differ."""

import array
import collections
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dpdemo.calls.tree import text_of
from dpdemo.checking import evidence
from dpdemo.checking.evidence import Value
from dpdemo.checking.observing.closeness import copy_of, identical, same_numbers
from dpdemo.checking.observing.holders import attributes, is_array, is_code, is_of_users

_CONTAINERS = (list, dict, set, tuple, collections.deque, bytearray, array.array)
_PLAIN = (int, float, complex, bool, type(None))
_MAX_PARTS = 200
_MAX_DEPTH = 2
"""So deep objects are opened; those of the user's own classes twice as deep."""
_MAX_CONTAINERS = 50
"""So many containers are opened, one in the other."""


@dataclass(frozen=True, eq=False)
class ValueCopy:
    """A value as it was."""

    type: str
    value: Any = None
    """The copy of a tensor, a plain value, an array's numbers as bytes, a counter in its own words."""
    shape: tuple[int, ...] = ()
    """Of an array."""
    identity: int = 0
    """Of an object, a module or a function: which one it is."""
    length: int | None = None
    """Of a container."""
    parts: "dict[str, ValueCopy]" = field(default_factory=dict)
    """Of a container its elements; of an object its attributes, or nothing where it was not opened."""
    is_followed: bool = False
    """Of a tensor: whether autograd follows it."""

    @property
    def is_opened(self) -> bool:
        """Whether it is an object whose attributes are known."""
        return self.identity != 0 and bool(self.parts)


ABSENT = ValueCopy("absent")


def is_shared(value: object) -> bool:
    """Return whether an attribute's value is one that can be written to: all replicas share the very same."""
    if isinstance(value, _CONTAINERS):
        return not isinstance(value, tuple)
    if is_array(value) or isinstance(value, itertools.count):
        return True
    is_plain = isinstance(value, (torch.Tensor, nn.Module, type, str, bytes, *_PLAIN)) or is_code(value)
    return not is_plain and (hasattr(value, "__dict__") or bool(attributes(value)))


def frozen(value: Any, depth: int = 0, around: tuple[int, ...] = ()) -> ValueCopy:  # noqa: PLR0911 - a kind each
    """Copy a value as far as a change in it could matter.

    Args:
        value: anything.
        depth: how many containers and, counted twice, objects it is in.
        around: the identities of these containers: one that holds itself is not opened again.

    """
    kind = type(value).__name__
    if isinstance(value, (str, bytes, *_PLAIN)):  # most are
        return ValueCopy(kind, value)
    if isinstance(value, torch.Tensor):
        return ValueCopy("tensor", copy_of(value), is_followed=value.grad_fn is not None)
    if isinstance(value, (nn.Module, type)) or is_code(value):
        return ValueCopy(kind, identity=id(value))
    if isinstance(value, _CONTAINERS):
        if id(value) in around or len(around) > _MAX_CONTAINERS:
            return ValueCopy(kind, length=len(value))
        items = list(value.items() if isinstance(value, dict) else enumerate(value))[:_MAX_PARTS]
        around = (*around, id(value))
        held = {text_of(key): frozen(part, depth + 1, around) for key, part in items}
        return ValueCopy(kind, length=len(value), parts=held)
    if is_array(value):
        return ValueCopy("array", value.tobytes(), tuple(value.shape))
    if isinstance(value, itertools.count):
        return ValueCopy("count", repr(value))
    is_opened = depth < _MAX_DEPTH or (depth < 2 * _MAX_DEPTH and is_of_users(value))
    held = (
        {name: frozen(part, depth + 2, around) for name, part in attributes(value).items()}
        if is_opened
        else {}
    )
    return ValueCopy(kind, identity=id(value), parts=held)


def same(first: ValueCopy, other: ValueCopy, *, of_one_model: bool) -> bool:
    """Compare two frozen values.

    Of one model before and after a run they are the same bit by bit; of two models but for rounding, and
    things known only by identity are not compared.
    """
    if first.type != other.type or first.length != other.length or first.shape != other.shape:
        return False
    if isinstance(first.value, torch.Tensor) and isinstance(other.value, torch.Tensor):
        return (identical if of_one_model else same_numbers)(first.value, other.value)
    if not (first.parts or other.parts) and of_one_model and first.identity != other.identity:
        return False
    if list(first.parts) != list(other.parts):
        return False
    is_equal = first.value == other.value or (first.value != first.value and other.value != other.value)
    pairs = zip(first.parts.values(), other.parts.values(), strict=True)
    return bool(is_equal) and all(same(left, right, of_one_model=of_one_model) for left, right in pairs)


def as_value(  # noqa: PLR0911 - a kind each
    value: ValueCopy, only: Mapping[str, ValueCopy] | None = None
) -> Value:
    """Write a frozen value down as data.

    Args:
        value: what `frozen` has made.
        only: of an object, what is to be named of it; by default its plain attributes.

    """
    held = value.value
    if value is ABSENT:
        return evidence.ABSENT
    if isinstance(held, torch.Tensor):
        number = float(held.item()) if held.numel() == 1 and not held.is_complex() else None
        shape = None if number is not None else tuple(held.shape)
        return Value("tensor", shape=shape, number=number, requires_grad=value.is_followed)
    if value.type == "array":
        return Value("array", shape=value.shape)
    if value.length is not None:
        return Value(value.type, length=value.length)
    if value.is_opened:
        named = only or {
            name: part
            for name, part in value.parts.items()
            if isinstance(part.value, (int, float, str)) and part.type != "count"
        }
        return Value(value.type, parts=tuple((name, as_value(named[name])) for name in list(named)[:2]))
    if value.identity:
        return Value(value.type, text=value.type)
    return Value(value.type, text=held if value.type == "count" else repr(held)[:40])


def values_apart(was: ValueCopy, alone: ValueCopy, shared: ValueCopy) -> tuple[Value, Value, Value]:
    """Write three frozen values down, of objects the attributes that are not the same in them."""
    apart = dict(_apart((was, alone, shared)))
    before, single, parallel = ({name: three[at] for name, three in apart.items()} for at in range(3))
    return as_value(was, before), as_value(alone, single), as_value(shared, parallel)


_Three = tuple[ValueCopy, ...]


def _apart(objects: _Three) -> Iterator[tuple[str, _Three]]:
    """List the attributes, and those of what is in them, that three objects do not have alike."""
    if not all(each.is_opened for each in objects):
        return
    for name in objects[1].parts:
        three = tuple(each.parts.get(name, ABSENT) for each in objects)
        if not all(same(each, three[0], of_one_model=False) for each in three[1:]):
            inner = [(f"{name}.{path}", parts) for path, parts in _apart(three)]
            yield from inner or [(name, three)]
