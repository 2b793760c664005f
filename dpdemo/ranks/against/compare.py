"""Compare the gradients of a step on N ranks with those of one process, parameter by parameter."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.ranks.against.shards import WHOLE
from dpdemo.ranks.against.store import Detail, Sampled
from dpdemo.ranks.events import NotedStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-3, "float16": 5e-4}
"""The difference that rounding makes anyway, by the lowest precision that was met."""
EPSILON = {"float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-11}
NOISE = 4.0
"""Multiples of the difference that one unit in the last place of each parameter makes."""
MOST = 0.1
_SMALL = 1e-3
_TINY = 1e-30
_ZERO = 1e-6
"""Of the largest gradient: rounding leaves as much where a gradient is zero by the rules of calculus."""
Vector = Any


@dataclass(frozen=True)
class Side:
    """A step as one process noted it."""

    event: NotedStep
    detail: Detail


@dataclass(frozen=True)
class Parameter:
    """One parameter's gradients: of all ranks together, of each rank, of one process."""

    name: str
    ranks: Vector
    one: Vector
    each: tuple[Vector, ...] = ()
    """None where ranks have shards."""
    norms: tuple[float, float] = (0.0, 0.0)

    def apart(self) -> float:
        """Return the norm of the difference, by the whole norms where these differ more."""
        return max(size(self.ranks - self.one), abs(self.norms[0] - self.norms[1]) * self.share())

    def share(self) -> float:
        """Return which part of the whole norm the compared numbers have."""
        largest = max(self.norms)
        return min(1.0, max(size(self.ranks), size(self.one)) / largest) if largest else 0.0


@dataclass(frozen=True)
class Step:
    """A step on all ranks and on one process."""

    ranks: tuple[Side, ...]
    one: Side
    noise: dict[str, float] = field(default_factory=dict)
    """By parameter: how far one unit in the last place carries."""
    is_wrapped: bool = False
    """Whether PyTorch is to average gradients of a model, and no hook of the program changes how."""
    has_hook: bool = False
    drifted: frozenset[str] = frozenset()
    """The parameters that differ between ranks at a later step."""
    scale: float = 1.0
    """The factor of one process's gradients, since it divides by a rank's number of rows."""

    @property
    def data(self) -> tuple[Side, ...]:
        """The ranks that have rows of their own: under tensor parallelism the first of each group."""
        return tuple(side for rank, side in enumerate(self.ranks) if side.event.owner in {-1, rank})

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters."""
        return self.ranks[0].event.names

    @property
    def number(self) -> int:
        """The step's number."""
        return self.ranks[0].event.step

    @property
    def at(self) -> str:
        """The line of the optimizer's step."""
        return self.ranks[0].event.at

    @property
    def dtype(self) -> str:
        """The lowest precision that was met."""
        found = {side.event.dtype for side in (*self.ranks, self.one)}
        return next((each for each in ("bfloat16", "float16") if each in found), "float32")

    @property
    def is_skipped(self) -> bool:
        """Whether a gradient scaler left the step out, on the ranks or on one process."""
        return any(side.event.is_skipped for side in (*self.data, self.one))

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that have a gradient on both sides."""
        found = (self._parameter(place) for place in range(len(self.names)))
        return tuple(each for each in found if each is not None)

    @cached_property
    def plain(self) -> tuple[Parameter, ...]:
        """Those of them that each rank has whole."""
        return tuple(each for each in self.parameters if each.each)

    def one_sided(self) -> list[str]:
        """Name the parameters that have a gradient on one side only, and on the other none or zeros."""
        found, least = [], _ZERO * max((each.norms[1] for each in self.parameters), default=0.0)
        for place, name in enumerate(self.names):
            ranks, one = self._gradients(place)
            norms = [max(0.0 if part is None else part.norm for part in side) for side in (ranks, (one,))]
            if min(norms) == 0 and max(norms) > least:
                found.append(name)
        return found

    def partly(self) -> dict[str, tuple[int, ...]]:
        """Return the ranks that have a gradient, by the parameters that have one on some ranks only."""
        found = {}
        for place, name in enumerate(self.names):
            ranks, _ = self._gradients(place)
            having = tuple(rank for rank, each in enumerate(ranks) if each is not None)
            if self.ranks[0].event.pieces[place] == WHOLE and 0 < len(having) < len(ranks):
                found[name] = having
        return found

    def _gradients(self, place: int) -> tuple[list[Sampled | None], Sampled | None]:
        one = self.one.detail.gradients
        return [side.detail.gradients[place] for side in self.ranks], one[place] if place < len(one) else None

    def _parameter(self, place: int) -> Parameter | None:
        ranks, one = self._gradients(place)
        pieces = [side.event.pieces[place] for side in self.ranks]
        if one is None:
            return None
        single, one_norm = vector(one.data) * self.scale, one.norm * self.scale
        if pieces[0] == WHOLE:
            if any(each is None for each in ranks):
                return None
            each = tuple(vector(part.data) for part in ranks if part is not None)
            norms = (ranks[0].norm if ranks[0] else 0.0, one_norm)
            return Parameter(self.names[place], each[0], single, each, norms)
        shards = {
            piece: part for piece, part in reversed(list(zip(pieces, ranks, strict=True))) if part is not None
        }
        if not shards:
            return None
        whole = torch.cat([vector(part.data) for _, part in sorted(shards.items())])
        length = min(len(whole), len(single))
        norm = sum(part.norm**2 for part in shards.values()) ** 0.5
        return Parameter(self.names[place], whole[:length], single[:length], (), (norm, one_norm))

    def tolerance(self) -> float:
        """Return the relative difference up to which gradients count as equal."""
        return min(MOST, max(TOLERANCE[self.dtype], NOISE * self.noise.get("", 0.0)))

    def difference(self) -> float:
        """Return the relative difference of all gradients together."""
        total = size(self.one_vector)
        return size(self.ranks_vector - self.one_vector) / max(total, _TINY)

    def odd(self) -> list[str]:
        """Name the parameters whose gradients differ by more than the tolerance."""
        total = sum(each.norms[1] ** 2 for each in self.parameters) ** 0.5
        found = []
        for each in self.parameters:
            allowed = min(MOST, max(10 * TOLERANCE[self.dtype], NOISE * self.noise.get(each.name, 0.0)))
            if each.apart() > allowed * max(size(each.one), _SMALL * total):
                found.append(each.name)
        return found

    def is_equal(self) -> bool:
        """Return whether all gradients are equal to the tolerance."""
        return bool(self.parameters) and self.difference() <= self.tolerance() and not self.odd()

    @cached_property
    def ranks_vector(self) -> Vector:
        """The gradients of all ranks together, one after the other."""
        return together(each.ranks for each in self.parameters)

    @cached_property
    def one_vector(self) -> Vector:
        """The gradients of one process, one after the other."""
        return together(each.one for each in self.parameters)

    def has_same_rows(self) -> bool:
        """Return whether the models of both sides got the same rows, or columns, as inputs."""
        return any(_are_alike(_numbers(self.data, dim), _numbers([self.one], dim)) for dim in (0, 1))

    def has_same_calls(self) -> bool:
        """Return whether each call of one process had the rows of the ranks', or of each rank in turn."""
        return any(self._has_same_calls(dim) for dim in (0, 1))

    def _has_same_calls(self, dim: int) -> bool:
        sides = [side.detail.calls for side in (*self.data, self.one)]
        *ranks, one = ([call[dim] if len(call) > dim else 0 for call in calls] for calls in sides)
        if len(one) == len(ranks) * len(ranks[0]):
            return sum(map(sum, ranks)) == sum(one)
        if {len(each) for each in ranks} != {len(one)}:
            return False
        pairs = list(zip(zip(*ranks, strict=True), one, strict=True))
        fixed = [set(mine) == {single} for mine, single in pairs]  # as where a model gets all classes
        is_sum = [sum(mine) == single > 0 for mine, single in pairs]
        return all(map(max, fixed, is_sum)) and (any(is_sum) or not pairs)


def _numbers(sides: Sequence[Side], dim: int) -> list[float]:
    return sorted(number for side in sides for leaf in side.detail.inputs for number in leaf[dim])


def _are_alike(of_ranks: list[float], of_one: list[float]) -> bool:
    if not of_one or len(of_ranks) != len(of_one):
        return False
    a, b = (torch.tensor(each, dtype=torch.float64, device="cpu") for each in (of_ranks, of_one))
    return bool(((a - b).abs() <= 1e-3 * b.abs().clamp(min=1e-3 * float(b.abs().max()))).all())


def vector(data: bytes) -> Vector:
    """Return numbers as a vector of float64."""
    return (
        torch.frombuffer(bytearray(data), dtype=torch.float32).double()
        if data
        else torch.zeros(0, dtype=torch.float64, device="cpu")
    )


def together(parts: Iterable[Vector]) -> Vector:
    """Return vectors as one."""
    return torch.cat([torch.zeros(0, dtype=torch.float64, device="cpu"), *parts])


def size(numbers: Vector) -> float:
    """Return the norm of a vector."""
    return float(torch.linalg.vector_norm(numbers))


def close(a: Vector, b: Vector, tolerance: float) -> bool:
    """Return whether two vectors are equal to a relative tolerance."""
    return size(a - b) <= tolerance * max(size(a), size(b), _TINY)


def noise_between(step: Step, nudged: Side) -> dict[str, float]:
    """Return how far the gradients of one process move if each parameter changes in its last place."""
    other = Step((nudged,), step.one)
    total = sum(each.norms[1] ** 2 for each in other.parameters) ** 0.5
    found = {
        each.name: size(each.ranks - each.one) / max(size(each.one), _SMALL * total, _TINY)
        for each in other.parameters
    }
    return {**found, "": other.difference()}


def rows_of(sides: Sequence[Side]) -> int:
    """Count the rows of the training calls of a step."""
    return sum(sum(side.event.rows) for side in sides)
