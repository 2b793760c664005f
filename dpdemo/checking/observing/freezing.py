"""Copies of values that later changes cannot reach, and how two of them differ."""

import array
import collections
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from dpdemo.checking import evidence
from dpdemo.checking.evidence import Value
from dpdemo.checking.observing.closeness import copy_of, identical, same_numbers
from dpdemo.checking.observing.holders import attributes, is_array, is_code, is_of_users

_CONTAINERS = (list, dict, set, tuple, collections.deque, bytearray, array.array)
_PLAIN = (int, float, complex, bool, type(None))
_MAX_PARTS = 200
_MAX_DEPTH = 2
"""So deep objects are opened; those of the user's own classes twice as deep."""
ABSENT = "(absent)"


def is_shared(value: object) -> bool:
    """Return whether an attribute's value is one that can be written to: all replicas share the very same."""
    if isinstance(value, _CONTAINERS):
        return not isinstance(value, tuple)
    if is_array(value) or isinstance(value, itertools.count):
        return True
    is_plain = isinstance(value, (torch.Tensor, nn.Module, type, str, bytes, *_PLAIN)) or is_code(value)
    return not is_plain and (hasattr(value, "__dict__") or bool(attributes(value)))


def frozen(value: Any, depth: int = 0) -> Any:
    """Copy a value as far as a change in it could matter."""
    if isinstance(value, torch.Tensor):
        twin = copy_of(value)
        if value.grad_fn is not None:
            vars(twin)["was_followed"] = True
        return twin
    if isinstance(value, (nn.Module, type)) or is_code(value):
        return Identity(value)
    if isinstance(value, _CONTAINERS):
        return _frozen_container(value, depth)
    if isinstance(value, (str, bytes, *_PLAIN)):
        return value
    if is_array(value):
        return _Array(tuple(value.shape), value.tobytes())
    return _Counter(repr(value)) if isinstance(value, itertools.count) else _frozen_object(value, depth)


def _frozen_container(value: Any, depth: int) -> tuple[str, int, tuple[Any, ...]]:
    """Copy the type of a container, its length, and what is in it."""
    if isinstance(value, dict):
        items = list(value.items())[:_MAX_PARTS]
        return (
            type(value).__name__,
            len(value),
            tuple((str(key), frozen(part, depth + 1)) for key, part in items),
        )
    return (
        type(value).__name__,
        len(value),
        tuple(frozen(part, depth + 1) for part in list(value)[:_MAX_PARTS]),
    )


def _frozen_object(value: Any, depth: int) -> "_Object":
    is_opened = depth < _MAX_DEPTH or (depth < 2 * _MAX_DEPTH and is_of_users(value))
    parts_of_it = attributes(value) if is_opened else {}
    held = tuple((name, frozen(part, depth + 2)) for name, part in parts_of_it.items())
    return _Object(type(value).__name__, Identity(value), held)


class Identity:
    """A thing that is only compared by which one it is; the weak form of equality that copies share."""

    def __init__(self, value: object) -> None:
        self.type = type(value).__name__
        self.id = id(value)


class _Array(NamedTuple):
    """An array of NumPy's: its shape, and its numbers as bytes."""

    shape: tuple[int, ...]
    numbers: bytes


class _Counter(NamedTuple):
    """How far an `itertools.count` has come, in its own words: `count(3)`."""

    text: str


class _Object(NamedTuple):
    """An object, with what its attributes held; nothing where it was not opened."""

    type: str
    identity: Identity
    parts: tuple[tuple[str, Any], ...]


def same(one: object, other: object, *, of_one_model: bool) -> bool:
    """Compare two frozen values.

    Of one model before and after a run they are the same bit by bit; of two models but for rounding, and
    things known only by identity are not compared.
    """
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return identical(one, other) if of_one_model else same_numbers(one, other)
    if isinstance(one, Identity) and isinstance(other, Identity):
        return one.id == other.id or (not of_one_model and one.type == other.type)
    if isinstance(one, _Object) and isinstance(other, _Object) and one.parts and other.parts:
        alike = same(one.parts, other.parts, of_one_model=of_one_model)
        return one.type == other.type and alike  # be it another object
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(
            same(left, right, of_one_model=of_one_model) for left, right in zip(one, other, strict=True)
        )
    if type(one) is not type(other):
        return False
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - NaN


def parts_of(value: object) -> dict[str, Any] | None:
    """Return the attributes of a frozen object; None of anything else."""
    return dict(value.parts) if isinstance(value, _Object) else None


def length_of(value: Any) -> int | None:
    """Return how long a frozen container is; None for an object and for any other value."""
    is_container = isinstance(value, tuple) and len(value) == 3 and isinstance(value[1], int)
    return value[1] if is_container else None


def as_value(value: Any, only: Sequence[str] = ()) -> Value:  # noqa: PLR0911 - a kind each
    """Write a frozen value down as data.

    Args:
        value: what `frozen` has made.
        only: of an object, the attributes to be named; by default its plain ones.

    """
    if value is ABSENT:
        return evidence.ABSENT
    if isinstance(value, torch.Tensor):
        number = float(value.item()) if value.numel() == 1 and not value.is_complex() else None
        shape = None if number is not None else tuple(value.shape)
        return Value(
            "tensor", shape=shape, number=number, requires_grad=getattr(value, "was_followed", False)
        )
    if isinstance(value, Identity):
        return Value(value.type, text=value.type)
    if isinstance(value, _Array):
        return Value("array", shape=value.shape)
    if isinstance(value, _Counter):
        return Value("count", text=value.text)
    if isinstance(value, _Object):
        held = dict(value.parts)
        plain = [name for name, part in value.parts if isinstance(part, (int, float, str))]
        parts = tuple((name, as_value(_at(held, name))) for name in (only or plain)[:2])
        return Value(value.type, parts=parts)
    if isinstance(value, tuple):
        return Value(value[0], length=value[1])
    return Value(type(value).__name__, text=repr(value)[:40])


def values_apart(was: object, alone: object, shared: object) -> tuple[Value, Value, Value]:
    """Write three frozen values down, of objects the attributes that are not the same in them."""
    opened = [parts_of(one) for one in (was, alone, shared)]
    names = list(dict.fromkeys(_apart(*(one or {} for one in opened)))) if all(opened) else []
    return as_value(was, names), as_value(alone, names), as_value(shared, names)


def _apart(was: dict[str, Any], alone: dict[str, Any], shared: dict[str, Any]) -> Iterator[str]:
    """List the attributes, and those of what is in them, that three objects do not have alike."""
    for name in alone:
        three = [one.get(name, ABSENT) for one in (was, alone, shared)]
        if all(same(one, three[0], of_one_model=False) for one in three[1:]):
            continue
        opened = [parts_of(one) for one in three]
        inner = list(_apart(*(one or {} for one in opened))) if all(opened) else []
        yield from (f"{name}.{one}" for one in inner) if inner else [name]


def _at(held: dict[str, Any], path: str) -> object:
    name, _, rest = path.partition(".")
    part = held.get(name, ABSENT)
    return _at(parts_of(part) or {}, rest) if rest else part
