"""The user's inputs at any batch size: from shapes as of `--input`, an example, or a function.

`Batches.of` is the one place that decides on the batch size: of two that differ the user's choice wins, then
the rows of the shapes or of the example, then the command's default.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from dpdemo.calls.tree import rebuild
from dpdemo.errors import UsageError
from dpdemo.models.failure import user_frames, users_code
from dpdemo.models.guessing import guess_input
from dpdemo.models.inputspec import WrittenInput, read_input
from dpdemo.models.libraries import Inputs
from dpdemo.models.rows import resize, rows_of

Arguments = tuple[tuple[object, ...], dict[str, object]]


class Batches:
    """Makes the arguments of a call at a batch size, always the same ones.

    Attributes:
        size: the batch size.
        worked_out: the input inferred from the model's first layer, as `--input` takes it, or "".

    """

    def __init__(self, make: Callable[[int], object], size: int, worked_out: str = "") -> None:
        self._make = make
        self.size = size
        self.worked_out = worked_out

    def arguments(self, size: int) -> Arguments:
        """Return the positional and keyword arguments of a batch of `size` rows."""
        return as_arguments(self._make(size))

    @classmethod
    def of(
        cls, given: object, size: int | None, default: int, dim: int = 0, *, numbers: bool = True
    ) -> "Batches":
        """Make batches of what a user gave: shapes as of `--input`, a function of the batch size, an example.

        Args:
            given: the inputs.
            size: the batch size that the user chose; None leaves it to the inputs.
            default: the batch size of a function where the user chose none.
            dim: the dimension that holds the batch.
            numbers: whether floats have numbers; without them a batch of any size costs nothing.

        Raises:
            UsageError: if the inputs have no batch dimension.

        """
        if isinstance(given, list) and given and all(isinstance(text, str) for text in given):
            return cls._of_specs(list(map(read_input, given)), size, dim, numbers=numbers)
        if callable(given) and not isinstance(given, torch.nn.Module):
            make = drawing(given) if numbers else given
            return cls(partial(_call, make), size or default)
        return cls._of_example(given if numbers else rebuild(given, _without_numbers), size, dim)

    @classmethod
    def _of_specs(cls, specs: list[WrittenInput], size: int | None, dim: int, *, numbers: bool) -> "Batches":
        if len(specs[0].shape) <= dim:
            raise UsageError(
                f"expected a shape with a dimension {dim}, got {'x'.join(map(str, specs[0].shape))}",
                key="input",
                hint="`dim` says which number of a shape is the batch size, counted from 0",
            )
        whole = specs[0].shape[dim]

        def make(size: int) -> object:
            generator = torch.Generator().manual_seed(0) if numbers else None
            made = [(spec.name, _tensor(spec, size, whole, generator, dim)) for spec in specs]
            args = tuple(tensor for name, tensor in made if not name)
            return args, {name: tensor for name, tensor in made if name}

        return cls(make, whole if size is None else size)

    @classmethod
    def _of_example(cls, example: object, size: int | None, dim: int) -> "Batches":
        """Take the rows of an example, over and over where more are wanted."""
        args, kwargs = as_arguments(example)
        whole = rows_of(args, kwargs, dim)
        if not whole:
            raise UsageError(
                "expected inputs with at least one tensor that has a batch dimension, got none",
                key="inputs",
                hint="give a tensor, a tuple of positional arguments, or a dict of keyword arguments",
            )
        make = lambda rows: (resize(args, whole, rows, dim), resize(kwargs, whole, rows, dim))  # noqa: E731
        return cls(make, whole if size is None else size)


def _tensor(
    spec: WrittenInput, rows: int, whole: int, generator: torch.Generator | None, dim: int
) -> torch.Tensor:
    """Make a tensor of a written shape; one with `whole` numbers along `dim`, the batch size, gets `rows`.

    Without a generator it has no numbers; masks then hide nothing, and ids are valid.
    """
    shape, dtype = list(spec.shape), getattr(torch, spec.dtype)
    if len(shape) > dim and shape[dim] == whole:
        shape[dim] = rows
    if generator is None:
        is_mask = dtype is torch.bool or "mask" in spec.name
        make = torch.empty if dtype.is_floating_point else torch.ones if is_mask else torch.zeros
        return make(shape, dtype=dtype, device="meta")
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, device="cpu").to(dtype)
    return torch.randint(0, spec.below, shape, generator=generator, device="cpu").to(dtype)


def batches_for(  # noqa: PLR0913, PLR0917 - all that decides on a batch
    model: torch.nn.Module,
    given: object,
    given_inputs: object,
    size: int | None,
    default: int,
    dim: int = 0,
    *,
    numbers: bool = True,
) -> Batches | None:
    """Make batches of the inputs that a user gave, else of those of the model's factory, else of a guess.

    Args:
        model: it is guessed from its first layer what it takes, if nobody says so.
        given: the inputs that the user gave, or None.
        given_inputs: the inputs that a factory returned with its model, or None.
        size: the batch size that the user chose, or None.
        default: the batch size where neither the user nor the inputs have one.
        dim: the dimension that holds the batch.
        numbers: whether floats have numbers.

    Returns:
        The batches; None if there are no inputs and the layers do not tell.

    """
    known = given_inputs if given is None else given
    if known is not None:
        return Batches.of(known, size, default, dim, numbers=numbers)
    guessed = None if dim else guess_input(model, size or default)
    if guessed is None:
        return None
    found = Batches.of([guessed], size, default, numbers=numbers)
    found.worked_out = guessed
    return found


def to_device(value: Any, device: torch.device) -> Any:
    """Copy the tensors of a structure to a device, and whatever else has a `to`, as a training loop does."""
    return rebuild(value, lambda leaf: leaf.to(device) if hasattr(leaf, "to") else leaf)


def _without_numbers(leaf: object) -> object:
    """Drop the numbers of an example, so that repeating it costs nothing; ids and lengths keep theirs."""
    is_float = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.to("meta") if is_float else leaf  # type: ignore[attr-defined] # it is a tensor


def drawing(make: Callable[[int], object]) -> Callable[[int], object]:
    """Return a function whose batches have the same numbers in each call: a library's images have none."""
    if not isinstance(make, Inputs):
        return make

    def made(rows: int) -> object:
        generator = torch.Generator("cpu").manual_seed(0)
        return rebuild(make(rows), lambda leaf: with_numbers(leaf, generator))

    return made


def with_numbers(leaf: object, generator: torch.Generator | None = None) -> object:
    """Draw the numbers of a tensor that has none: fractions at random, valid ids, masks that hide nothing."""
    if not isinstance(leaf, torch.Tensor) or not leaf.is_meta:
        return leaf
    if leaf.is_floating_point():
        return torch.randn(leaf.shape, dtype=leaf.dtype, device="cpu", generator=generator)
    return (
        torch.ones(leaf.shape, dtype=leaf.dtype, device="cpu")
        if leaf.dtype is torch.bool
        else torch.zeros_like(leaf, device="cpu")
    )


def as_arguments(value: object) -> Arguments:
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


def _is_pair(value: tuple[object, ...]) -> bool:
    return isinstance(value[0], tuple) and type(value[1]) is dict


def _call(function: Callable[[int], object], batch_size: int) -> object:
    try:
        with users_code():
            return function(batch_size)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"expected inputs for a batch of {batch_size}, got {type(error).__name__}: {error}"
            + user_frames(error),
            key="inputs",
        ) from error
