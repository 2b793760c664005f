"""A rank's file of tensors and samples: each is found by the offset that an event names."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Shape = tuple[int, ...]
Box = tuple[Shape, Shape]


@dataclass(frozen=True)
class Kept:
    """All numbers of a tensor, as its memory has them."""

    dtype: str
    shape: Shape
    data: bytes


@dataclass(frozen=True)
class Sampled:
    """Some numbers of a tensor, float32, and the norm of all of them; `size` counts all."""

    data: bytes
    norm: float
    size: int


@dataclass(frozen=True)
class Node:
    """An operation in the graph of a loss: its result's shape, and the shapes and names of its inputs."""

    name: str
    shape: Shape
    inputs: tuple[Shape, ...]
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Backward:
    """A backward pass: its line, its loss, and each parameter's gradient before ranks average it."""

    at: str
    lines: tuple[str, ...] = ()
    """The lines of program and libraries that led to it, the innermost first."""
    loss: float = 0.0
    averaged: tuple[float, ...] = ()
    """Over how many elements each reduction of the loss averages; 1 for a sum."""
    divisors: tuple[float, ...] = ()
    """The number that the program divides each of them by."""
    over: tuple[Shape, ...] = ()
    """The shape that each of them reduces."""
    nodes: tuple[Node, ...] = ()
    gradients: tuple[bytes | None, ...] = ()
    number: int = 0
    """Its place among the passes of the program."""

    @property
    def elements(self) -> tuple[float, ...]:
        """The number that each reduction of the loss is divided by in all."""
        return tuple(a * b for a, b in zip(self.averaged, self.divisors, strict=True))


@dataclass(frozen=True)
class Clip:
    """A clipping of gradients: its line, and their norm."""

    at: str
    norm: float


@dataclass(frozen=True)
class Detail:
    """What a step's event has no room for."""

    gradients: tuple[Sampled | None, ...] = ()
    parameters: tuple[Kept | None, ...] = ()
    boxes: tuple[Box | None, ...] = ()
    """Of each shard of a DTensor: where it begins in the parameter, and its shape."""
    backward: tuple[Backward, ...] = ()
    clips: tuple[Clip, ...] = ()
    inputs: tuple[tuple[tuple[float, ...], ...], ...] = ()
    """A number for each row of each input of the outermost modules, and one for each column."""
    calls: tuple[Shape, ...] = ()
    """Rows and columns of the first input of each of their calls."""


class Store:
    """The file of one rank, written once and read anywhere."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, value: Any) -> int:
        """Append a value, and return where it is."""
        data = pickle.dumps(value, protocol=5)
        with self.path.open("ab") as file:
            at = file.seek(0, io.SEEK_END)
            file.write(data)
        return at

    def read(self, at: int) -> Any:
        """Return the value at an offset."""
        with self.path.open("rb") as file:
            file.seek(at)
            return pickle.load(file)  # noqa: S301 - written by a run of the same program
