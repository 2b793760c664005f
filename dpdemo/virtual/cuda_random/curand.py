"""NVIDIA's conversions of Philox's words into numbers (curand_uniform.h, curand_normal.h).

Uniform numbers lie in (0, 1] and are exact: on a card they have the same bits. Normal ones go through a
logarithm, a sine and a cosine, for which a card uses its own approximations (`logf`, `__sincosf`): they agree
with these to about 1e-6.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Words = tuple[Tensor, Tensor, Tensor, Tensor]
    Numbers = Iterable[Tensor]

_WORD = 2.0**-32
_LONG = 2.0**-53
_HALF_A_WORD = torch.tensor(_WORD / 2, dtype=torch.float32, device="cpu")
_PART = 2048
_CIRCLE = 6.2831854820251465  # 2 pi, rounded to float32


def in_parts(apply: Callable[[Tensor], Tensor], numbers: Tensor) -> Tensor:
    """Apply a function of the mathematics library in place, to few numbers at a time: one thread does it.

    PyTorch hands more than 2048 out to threads; on a busy machine waiting for them takes most of the time.
    """
    if numbers.numel() <= _PART:
        return apply(numbers)
    for part in numbers.split(_PART):  # type: ignore[no-untyped-call]
        apply(part)
    return numbers


class Source(NamedTuple):
    """A way to turn one call's four words into `unroll` numbers for each thread, as they are asked for."""

    unroll: int
    numbers: Callable[[Words], Numbers]


def _uniform(word: Tensor) -> Tensor:
    numbers = word.float()
    return torch.add(_HALF_A_WORD, numbers, alpha=_WORD, out=numbers)


def _long(low: Tensor, high: Tensor) -> Tensor:
    """Return 53 bits of two words as float64, which holds them exactly."""
    return (low ^ high << 21).double()


def _uniform_long(low: Tensor, high: Tensor) -> Tensor:
    return _long(low, high).mul_(_LONG).add_(_LONG / 2)


def _long_uniforms(words: Words) -> Numbers:
    yield _uniform_long(*words[:2])
    yield _uniform_long(*words[2:])


def _radius(uniform: Tensor) -> Tensor:
    return in_parts(Tensor.sqrt_, in_parts(Tensor.log_, uniform).mul_(-2))


def _around(angle: Tensor, radius: Tensor) -> Numbers:
    """Box and Muller's transform; the sine comes first."""
    yield in_parts(Tensor.sin_, angle.clone()).mul_(radius)
    yield in_parts(Tensor.cos_, angle).mul_(radius)


def _normals(words: Words) -> Numbers:
    """In float32, as `_curand_box_muller` does it."""
    for word, other in (words[:2], words[2:]):
        # a card multiplies and adds with one rounding: float64 does both exactly
        angle = other.float().double().mul_(_CIRCLE * _WORD).add_(_CIRCLE * _WORD / 2).float()
        yield from _around(angle, _radius(_uniform(word)))


def _long_normals(words: Words) -> Numbers:
    """In float64 (`_curand_box_muller_double`)."""
    angle = _long(*words[2:]).mul_(2 * _LONG).add_(_LONG).mul_(math.pi)
    yield from _around(angle, _radius(_uniform_long(*words[:2])))


def _long_bits(words: Words) -> Numbers:
    yield words[0] << 32 | words[1]
    yield words[2] << 32 | words[3]


BITS, LONG_BITS = Source(4, lambda words: words), Source(2, _long_bits)
UNIFORM, LONG_UNIFORM = Source(4, lambda words: map(_uniform, words)), Source(2, _long_uniforms)
NORMAL, LONG_NORMAL = Source(4, _normals), Source(2, _long_normals)
