"""The batches that a check runs: what the user gave, at any batch size, and which sizes an epoch holds."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from dpdemo.errors import UsageError
from dpdemo.inputspec import read_input
from dpdemo.preflight.evidence import likely_rows
from dpdemo.preflight.leaves import flatten, length_of, parts_of, with_parts

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Stays = Callable[[torch.Tensor], bool]
"""Says which tensors stay where they are when the others are moved to a GPU."""


@dataclass(frozen=True)
class InputSpec:
    """One `--input`: a shape whose first number is the batch size, and perhaps a name and a type."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    below: int = 2

    @classmethod
    def parse(cls, text: str) -> "InputSpec":
        """Read `32x128`, `mask=32x128:bool` or `ids=32x16:int64<1000`.

        Raises:
            UsageError: for anything else.

        """
        written = read_input(text)
        return cls(written.name, written.shape, getattr(torch, written.dtype), written.below)

    def make(self, rows: int, whole: int, generator: torch.Generator) -> torch.Tensor:
        """Draw a tensor; one whose first number is the batch size gets `rows` rows."""
        shape = (rows, *self.shape[1:]) if self.shape[0] == whole else self.shape
        if self.dtype.is_floating_point:
            return torch.randn(shape, generator=generator).to(self.dtype)
        return torch.randint(0, self.below, shape, generator=generator).to(self.dtype)


class Batches:
    """Makes the arguments of a call at a batch size, always the same ones."""

    def __init__(self, make: Callable[[int], Any], size: int) -> None:
        self._make = make
        self.size = size

    def arguments(self, size: int) -> Arguments:
        """Return the positional and keyword arguments of a batch of `size` rows."""
        return as_arguments(self._make(size))

    @classmethod
    def from_specs(cls, specs: list[InputSpec]) -> "Batches":
        """Draw random inputs of given shapes."""
        whole = specs[0].shape[0]

        def make(size: int) -> Any:
            generator = torch.Generator().manual_seed(0)
            drawn = [(spec.name, spec.make(size, whole, generator)) for spec in specs]
            args = tuple(tensor for name, tensor in drawn if not name)
            return args, {name: tensor for name, tensor in drawn if name}

        return cls(make, whole)

    @classmethod
    def from_example(cls, example: Any, dim: int = 0) -> "Batches":
        """Take the rows of an example, over and over where more are wanted."""
        args, kwargs = as_arguments(example)
        whole = rows_of(args, kwargs, dim)
        if not whole:
            raise UsageError(
                "expected inputs with at least one tensor that has a batch dimension, got none - at `inputs`",
                hint="give a tensor, a tuple of positional arguments, or a dict of keyword arguments",
            )
        return cls(lambda size: (resize(args, whole, size, dim), resize(kwargs, whole, size, dim)), whole)

    @classmethod
    def from_function(cls, make: Callable[[int], Any], size: int) -> "Batches":
        """Call the user's own function with a batch size."""
        return cls(make, size)


def as_arguments(value: Any) -> Arguments:
    """Read what a user gave as inputs: one value, a tuple of arguments, a dict of them, or (tuple, dict)."""
    if isinstance(value, PackedSequence):
        return (value,), {}
    if isinstance(value, tuple) and len(value) == 2 and _is_pair(value):
        return tuple(value[0]), dict(value[1])
    if isinstance(value, tuple):
        return value, {}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return (), value
    return (value,), {}


def _is_pair(value: tuple[Any, ...]) -> bool:
    return isinstance(value[0], tuple) and type(value[1]) is dict


def rows_of(args: Any, kwargs: Any, dim: int) -> int:
    """Guess the batch size of a call: that of its tensors, or else the length of an argument."""
    sizes = [
        leaf.size(dim)
        for _, leaf in (*flatten(args), *flatten(kwargs))
        if isinstance(leaf, torch.Tensor) and _has(leaf, dim)
    ]
    if sizes:
        return likely_rows(sizes)
    lengths = [_length(value) for value in (*args, *kwargs.values())]
    return next((length for length in lengths if length), 0)


def _length(value: Any) -> int:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
        first = next(
            (leaf for leaf in vars(value).values() if isinstance(leaf, torch.Tensor) and leaf.dim())
            if hasattr(value, "__dict__")
            else iter(()),
            None,
        )
        return 0 if first is None else len(first)
    if isinstance(value, Mapping):
        return next(
            (len(part) for part in value.values() if isinstance(part, torch.Tensor) and part.dim()), 0
        )
    return length_of(value) or 0


def resize(value: Any, whole: int, size: int, dim: int) -> Any:  # noqa: PLR0911 - a case a line
    """Cut or repeat to `size` rows whatever has `whole` of them."""
    if size == whole:
        return value
    if isinstance(value, torch.Tensor):
        if not _is_batch(value, whole, dim):
            return value
        return value.index_select(dim, torch.arange(size, device=value.device) % whole)
    if isinstance(value, dict):
        return with_parts(value, [resize(part, whole, size, dim) for part in value.values()])
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        if len(value) == whole and not any(_is_batch(part, whole, dim) for part in value):
            return type(value)(value[row % whole] for row in range(size))
        return type(value)(resize(part, whole, size, dim) for part in value)
    if hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module) and not callable(value):
        return _resize_inside(value, whole, size, dim)
    if hasattr(value, "take") and hasattr(value, "shape") and value.shape[:1] == (whole,):
        return value.take([row % whole for row in range(size)], axis=0)  # numpy
    return value


def _resize_inside(value: Any, whole: int, size: int, dim: int) -> Any:
    twin = copy.copy(value)
    try:
        for name, part in vars(value).items():
            setattr(twin, name, resize(part, whole, size, dim))
    except (AttributeError, TypeError):  # frozen
        return value
    return twin


def _is_batch(value: Any, whole: int, dim: int) -> bool:
    return isinstance(value, torch.Tensor) and _has(value, dim) and value.size(dim) == whole


def _has(tensor: torch.Tensor, dim: int) -> bool:
    return -tensor.dim() <= dim < tensor.dim()


def nothing_stays(_: torch.Tensor) -> bool:
    """Say that every tensor is to be moved."""
    return False


def could_be_lengths(tensor: torch.Tensor) -> bool:
    """Whether a tensor looks like one that PyTorch wants on the CPU, as it does the lengths of sequences."""
    return tensor.device.type == "cpu" and tensor.dim() == 1 and tensor.dtype in (torch.int64, torch.int32)


def on_device(value: Any, device: torch.device, stays: Stays = nothing_stays) -> Any:
    """Copy arguments to a device, as a training loop does before the call, but for tensors that stay."""
    if isinstance(value, PackedSequence):
        return value.to(device)  # type: ignore[arg-type] # its stub knows dtypes only
    if isinstance(value, torch.Tensor):
        target = value.device if stays(value) else device
        twin = value.detach().to(target).clone().requires_grad_(value.requires_grad)
        return twin if value.is_leaf else twin.clone()  # what is no leaf may be changed in place
    if (parts := parts_of(value)) is not None:
        return with_parts(value, [on_device(part, device, stays) for _, part in parts])
    if hasattr(value, "__dict__") and not callable(value) and not isinstance(value, torch.nn.Module):
        return _inside_on_device(value, device, stays)
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - a user's own class
        return value


def _inside_on_device(value: Any, device: torch.device, stays: Stays) -> Any:
    try:
        twin = copy.copy(value)
        for name, part in vars(value).items():
            object.__setattr__(twin, name, on_device(part, device, stays))
    except Exception:  # noqa: BLE001 - a user's own class
        return value
    return twin


@dataclass(frozen=True)
class Planned:
    """One batch to probe; `is_real` where an epoch surely holds one of this size."""

    size: int
    mode: str
    is_real: bool


def plan(size: int, num_gpus: int, data_size: int | None, *, drop_last: bool) -> list[Planned]:
    """List the batches to run: the full one in both modes, and the short ones where splits go wrong.

    Without `data_size` the last batch can have any size: one more than a multiple of the GPUs, and one less
    than there are GPUs, stand for all.
    """
    planned = [Planned(size, "train", True), Planned(size, "eval", True)]
    if data_size is not None:
        last = data_size % size
        if last and not drop_last:
            planned += [Planned(last, "train", True), Planned(last, "eval", True)]
        return planned
    if drop_last:
        return planned
    few = [Planned(num_gpus - 1, "eval", False)] if num_gpus > 2 else [Planned(1, "eval", False)]
    short = [Planned(num_gpus + 1, "train", False), *few]
    return planned + [batch for batch in short if batch.size < size]
