"""The batch of a step, at any size: from the config, from shapes, or from the user's own function.

The tensors are made on the host and copied to the model's device, as in a training loop. Those of a config
and of shapes have no numbers on the host either, so a batch of any size costs nothing.
"""

from collections.abc import Callable

import torch
from torch import nn

from dpdemo.calls.tree import named_tensors, rebuild
from dpdemo.config.catalogue import batched
from dpdemo.config.fields import Config
from dpdemo.config.targets import parse_target
from dpdemo.epochs.epoch import make_dataset
from dpdemo.errors import UsageError, about
from dpdemo.models.inputs import Arguments, Batches, batches_for, to_device, with_numbers
from dpdemo.models.libraries import InputSizes
from dpdemo.models.libraries.build import make_library_model
from dpdemo.models.libraries.huggingface import install_hooks
from dpdemo.models.user import load_with_inputs
from dpdemo.results.batches import Shape

Given = list[str] | Callable[[int], object] | None
"""The user's inputs: shapes as of `--input`, or a function of the batch size.

By default they are those that the factory returned with its model, else a tensor of `input_size`.
"""


class BatchMaker:
    """Makes the arguments of one call for a batch size, on a device.

    Attributes:
        has_new_hooks: whether transformers' hooks, which a first call puts into a model, were put in.
        is_guessed: whether nobody named the inputs of a model of the user's own.

    """

    def __init__(
        self, config: Config, given: Given, sizes: InputSizes | None = None, *, has_numbers: bool = False
    ) -> None:
        self._config = config
        self._sizes = sizes or InputSizes()
        self.has_numbers = has_numbers
        self.has_new_hooks = False
        self.is_guessed = not given and not config.is_builtin
        self._chosen_size = config.batch_size if "batch_size" in config.given else None
        if given:
            self._source = Batches.of(given, self._chosen_size, config.batch_size, config.dim, numbers=False)
        else:
            self._source = Batches(self._of_config, config.batch_size)

    def load_model(self, target: str, config: Config) -> tuple[nn.Module, object]:
        """Load the user's model, and take the inputs that come with it, unless others were given."""
        model, given_inputs = self._loaded(target, config)
        if self.is_guessed and (given_inputs is not None or "input_size" not in config.given):
            size, dim = self._chosen_size, config.dim
            found = batches_for(model, None, given_inputs, size, config.batch_size, dim, numbers=False)
            if found is not None:
                self._source, self.is_guessed = found, False
        return model, given_inputs

    def _loaded(self, target: str, config: Config) -> tuple[nn.Module, object]:
        parsed = parse_target(target)
        if parsed.library:
            with about("model"):
                return make_library_model(parsed.library, parsed.name, self._sizes)
        if self._sizes.image_size is not None or self._sizes.seq_len is not None:
            raise UsageError(
                f"expected sizes for the model of a library, got them for `{target}`",
                key="seq_len" if self._sizes.seq_len is not None else "image_size",
                hint="{input=} gives the shapes of what a model of your own takes",
            )
        model, inputs = load_with_inputs(target, config)
        self.has_new_hooks = install_hooks(model)
        return model, inputs

    @property
    def worked_out(self) -> str:
        """The input inferred from the model's first layer, as `--input` takes it, or ""."""
        return self._source.worked_out

    @property
    def batch_size(self) -> int:
        """The config's, or that of the inputs where the config names none."""
        return self._source.size

    def make(self, batch_size: int, device: torch.device) -> Arguments:
        """Make the batch and copy it to `device`.

        Raises:
            UsageError: if the user's function raises.

        """
        args, kwargs = self._source.arguments(batch_size)
        if self.has_numbers:
            args, kwargs = rebuild(args, with_numbers), rebuild(kwargs, with_numbers)
        return to_device(args, device), to_device(kwargs, device)

    def _of_config(self, batch_size: int) -> torch.Tensor:
        dataset = make_dataset(self._config)
        dtype = torch.int64 if dataset.vocabulary else dataset.dtype
        shape = batched(dataset.sample, batch_size, self._config.dim)
        return torch.empty(shape, dtype=dtype, device="meta")


def shapes_of(arguments: Arguments) -> tuple[tuple[str, Shape], ...]:
    """List the shapes of a batch by argument."""
    args, kwargs = arguments
    found = named_tensors({**{str(place): arg for place, arg in enumerate(args)}, **kwargs})
    return tuple((path, tuple(tensor.shape)) for path, tensor in found)
