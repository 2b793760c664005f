"""The batch of a step, at any size: from the config, from shapes, or from the user's own function.

The tensors are made on the host and copied to where the model wants them, as a training loop does. Those of a
config and of shapes have no numbers on the host either, so a batch of any size costs nothing.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dpdemo.catalogue import batched
from dpdemo.config import Config
from dpdemo.errors import UsageError
from dpdemo.failure import user_frames
from dpdemo.observer import named_tensors
from dpdemo.preflight.batches import Arguments, Batches, InputSpec, as_arguments
from dpdemo.report import Shape
from dpdemo.runner.epoch import make_dataset
from dpdemo.usermodel import load_with_inputs

Given = list[str] | Callable[[int], Any] | None
"""What a user says of the inputs: shapes as of `--input`, or a function of the batch size.

Without either they are those that the factory returned beside its model, else a tensor of `input_size`.
"""

_WITHOUT_NUMBERS = torch.device("meta")


class BatchMaker:
    """Makes the arguments of one call for a batch size, on a device."""

    def __init__(self, config: Config, given: Given) -> None:
        self._config = config
        self._specs = [InputSpec.parse(text) for text in given] if isinstance(given, list) else []
        self._function = given if callable(given) else None
        self._example: Batches | None = None

    def load_model(self, target: str, config: Config) -> nn.Module:
        """Load the user's model; inputs that come with it are the example, unless others were given."""
        model, inputs = load_with_inputs(target, config)
        if callable(inputs) and not isinstance(inputs, nn.Module):
            self._function = self._function or (None if self._specs else inputs)
        elif inputs is not None and not self._specs and self._function is None:
            self._example = Batches.from_example(_without_numbers(inputs), config.dim)
        return model

    @property
    def batch_size(self) -> int:
        """The config's, or that of the example where the config names none."""
        is_named = "batch_size" in self._config.model_fields_set
        return self._config.batch_size if is_named or self._example is None else self._example.size

    def make(self, batch_size: int, device: torch.device) -> Arguments:
        """Make the batch and copy it to `device`.

        Raises:
            UsageError: if the user's function raises.

        """
        args, kwargs = self._on_host(batch_size)
        return _moved(args, device), _moved(kwargs, device)

    def _on_host(self, batch_size: int) -> Arguments:
        if self._function is not None:
            return as_arguments(_call(self._function, batch_size))
        if self._example is not None:
            return self._example.arguments(batch_size)
        if self._specs:
            return self._from_specs(batch_size)
        dataset = make_dataset(self._config)
        dtype = torch.int64 if dataset.vocabulary else dataset.dtype
        shape = batched(dataset.sample, batch_size, self._config.dim)
        return (torch.empty(shape, dtype=dtype, device=_WITHOUT_NUMBERS),), {}

    def _from_specs(self, batch_size: int) -> Arguments:
        whole = _rows(self._specs[0], self._config.dim)
        made = [(spec.name, self._tensor(spec, batch_size, whole)) for spec in self._specs]
        args = tuple(tensor for name, tensor in made if not name)
        return args, {name: tensor for name, tensor in made if name}

    def _tensor(self, spec: InputSpec, batch_size: int, whole: int) -> torch.Tensor:
        shape, dim = list(spec.shape), self._config.dim
        if len(shape) > dim and shape[dim] == whole:
            shape[dim] = batch_size
        return torch.empty(shape, dtype=spec.dtype, device=_WITHOUT_NUMBERS)


def _rows(spec: InputSpec, dim: int) -> int:
    if len(spec.shape) <= dim:
        raise UsageError(
            f"expected a shape with a dimension {dim}, got {'x'.join(map(str, spec.shape))} - at `--input`",
            hint="`dim` says which number of a shape is the batch size, counted from 0",
        )
    return spec.shape[dim]


def _call(function: Callable[[int], Any], batch_size: int) -> Any:
    try:
        return function(batch_size)
    except Exception as error:
        raise UsageError(
            f"expected inputs for a batch of {batch_size}, got {type(error).__name__}: {error} - at `inputs`"
            + user_frames(error)
        ) from error


def _moved(value: Any, device: torch.device) -> Any:
    return _mapped(value, lambda leaf: leaf.to(device) if hasattr(leaf, "to") else leaf)


def _without_numbers(value: Any) -> Any:
    """Take the numbers from an example, so that it is repeated for nothing; ids and lengths keep theirs."""

    def take(leaf: Any) -> Any:
        is_noise = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        return leaf.to(_WITHOUT_NUMBERS) if is_noise else leaf

    return _mapped(value, take)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(part, change) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_mapped(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return change(value)


def shapes_of(arguments: Arguments) -> tuple[tuple[str, Shape], ...]:
    """List the shapes of a batch by argument."""
    args, kwargs = arguments
    found = named_tensors({**{str(place): arg for place, arg in enumerate(args)}, **kwargs})
    return tuple((path, tuple(tensor.shape)) for path, tensor in found)
