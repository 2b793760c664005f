"""The batch of a step, at any size: from the config, from shapes, or from the user's own function.

The tensors are made on the host and copied to where the model wants them, as a training loop does. Those of a
config and of shapes have no numbers on the host either, so a batch of any size costs nothing.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dpdemo.config.catalogue import batched
from dpdemo.config.fields import Config
from dpdemo.config.targets import parse_target
from dpdemo.errors import UsageError
from dpdemo.models.guessing import guess_input
from dpdemo.models.inputs import Arguments, Batches, InputSpec, with_numbers
from dpdemo.models.libraries import InputSizes
from dpdemo.models.libraries.build import make_library_model
from dpdemo.models.libraries.huggingface import install_hooks
from dpdemo.models.user import load_with_inputs
from dpdemo.reports.split import Shape
from dpdemo.running.epoch import make_dataset
from dpdemo.watching.tree import named_tensors, rebuild

Given = list[str] | Callable[[int], object] | None
"""What a user says of the inputs: shapes as of `--input`, or a function of the batch size.

Without either they are those that the factory returned beside its model, else a tensor of `input_size`.
"""

_WITHOUT_NUMBERS = torch.device("meta")


class BatchMaker:
    """Makes the arguments of one call for a batch size, on a device."""

    def __init__(
        self, config: Config, given: Given, sizes: InputSizes | None = None, *, has_numbers: bool = False
    ) -> None:
        self._config = config
        self._sizes = sizes or InputSizes()
        self.has_numbers = has_numbers
        self._specs = [InputSpec.parse(text) for text in given] if isinstance(given, list) else []
        self._function = given if callable(given) else None
        self._example: Batches | None = None
        self.worked_out = ""
        """The input that nobody gave, and that the model's first layer tells; as `--input` takes it."""
        self.note = ""
        """What a person should know of the inputs that a library's model comes with."""
        self.has_new_hooks = False
        """Whether transformers' hooks, which a first call puts into a model, were put in beforehand."""

    def load_model(self, target: str, config: Config) -> nn.Module:
        """Load the user's model; inputs that come with it are the example, unless others were given."""
        model, inputs = self._loaded(target, config)
        if callable(inputs) and not isinstance(inputs, nn.Module):
            self._function = self._function or (None if self._specs else inputs)
        elif inputs is not None and not self._specs and self._function is None:
            self._example = Batches.from_example(_without_numbers(inputs), config.dim)
        if self.is_guessed and "input_size" not in config.model_fields_set and not config.dim:
            self.worked_out = guess_input(model, self.batch_size) or ""
            self._specs = [InputSpec.parse(self.worked_out)] if self.worked_out else []
        return model

    def _loaded(self, target: str, config: Config) -> tuple[nn.Module, object]:
        parsed = parse_target(target, "key `model`")
        if parsed.library:
            made = make_library_model(parsed.library, parsed.name, self._sizes, "key `model`")
            self.note = made[1].note if self._function is None and not self._specs else ""
            return made
        if self._sizes.image_size is not None or self._sizes.seq_len is not None:
            raise UsageError(
                f"expected sizes for the model of a library, got them for `{target}` - at `--seq-len` or "
                "`--image-size`",
                hint="--input gives the shapes of what a model of your own takes",
            )
        model, inputs = load_with_inputs(target, config)
        self.has_new_hooks = install_hooks(model)
        return model, inputs

    @property
    def is_guessed(self) -> bool:
        """Whether nobody said what a model of the user's own takes."""
        is_said = self._specs or self._function is not None or self._example is not None
        return not is_said and not self._config.is_builtin

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
        if self.has_numbers:
            args, kwargs = rebuild(args, with_numbers), rebuild(kwargs, with_numbers)
        return _moved(args, device), _moved(kwargs, device)

    def _on_host(self, batch_size: int) -> Arguments:
        if self._function is not None:
            return Batches.from_function(self._function, batch_size).arguments(batch_size)
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
        if spec.dtype.is_floating_point:
            return torch.empty(shape, dtype=spec.dtype, device=_WITHOUT_NUMBERS)
        # programs look at masks, and index by ids: nothing is masked, and each id is one that there is
        is_mask = spec.dtype is torch.bool or "mask" in spec.name
        make = torch.ones if is_mask else torch.zeros
        return make(shape, dtype=spec.dtype, device=_WITHOUT_NUMBERS)


def _rows(spec: InputSpec, dim: int) -> int:
    if len(spec.shape) <= dim:
        raise UsageError(
            f"expected a shape with a dimension {dim}, got {'x'.join(map(str, spec.shape))} - at `--input`",
            hint="`dim` says which number of a shape is the batch size, counted from 0",
        )
    return spec.shape[dim]


def _moved(value: object, device: torch.device) -> Any:
    return rebuild(value, lambda leaf: leaf.to(device) if hasattr(leaf, "to") else leaf)


def _without_numbers(value: Any) -> Any:
    """Take the numbers from an example, so that it is repeated for nothing; ids and lengths keep theirs."""

    def take(leaf: object) -> object:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            return leaf.to(_WITHOUT_NUMBERS)
        return leaf

    return rebuild(value, take)


def shapes_of(arguments: Arguments) -> tuple[tuple[str, Shape], ...]:
    """List the shapes of a batch by argument."""
    args, kwargs = arguments
    found = named_tensors({**{str(place): arg for place, arg in enumerate(args)}, **kwargs})
    return tuple((path, tuple(tensor.shape)) for path, tensor in found)
