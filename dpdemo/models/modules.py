"""The built-in models, whose shapes are in `catalogue.py`.

A model here knows nothing of DataParallel: it hands the submodule that is to be split to `wrap`, which
returns the wrapper, and puts the layers before and after it on the given devices.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from dpdemo.config.catalogue import BLOCK, CHANNELS, EMBEDDING, VOCABULARY
from dpdemo.config.fields import Config
from dpdemo.models.user import load_with_inputs


@dataclass(frozen=True)
class Placement:
    """The devices of a model: `wrap` splits a module, `first` is for layers before it, `last` after it."""

    wrap: Callable[[nn.Module], nn.Module]
    first: torch.device
    last: torch.device


@dataclass(frozen=True)
class BuiltModel:
    """A model ready to call: `split` is the module inside the wrapper, whose forward each replica runs.

    `inputs` are those that the user's factory returned with the model, if it did.
    """

    model: nn.Module
    split: nn.Module
    wrapper: nn.Module
    input_device: torch.device
    inputs: object = None


Load = Callable[[str, Config], tuple[nn.Module, object]]
"""Loads the user's model, and the inputs that come with it."""


def build(config: Config, placement: Placement, load: Load = load_with_inputs) -> BuiltModel:
    """Build the model of a config and place it; `load` gets the user's own.

    The weights come from the config's seed; the global generator is left as it was.

    Raises:
        UsageError: if the user's own module or factory cannot be imported, raises, or gives no Module.

    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        if config.model in _BUILDERS:
            return _BUILDERS[config.model](config, placement)
        make = _WHOLE_MODELS.get(config.model)
        model, inputs = (make(config), None) if make else load(config.model, config)
        if make:
            model = model.to(getattr(torch, config.dtype))
        model = model.to(placement.first)
        wrapper = placement.wrap(model)
        return BuiltModel(wrapper, model, wrapper, placement.first, inputs)


class BatchAt(nn.Module):
    """Calls a batch-first module with a batch in another dimension."""

    def __init__(self, module: nn.Module, dim: int) -> None:
        super().__init__()
        self.module = module
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Move the batch to the front, and back in the result."""
        result: torch.Tensor = self.module(x.movedim(self.dim, 0))
        return result.movedim(0, self.dim)


def _batch_at(module: nn.Module, dim: int) -> nn.Module:
    return BatchAt(module, dim) if dim else module


def _cnn(config: Config) -> nn.Module:
    layers = nn.Sequential(
        nn.Conv2d(CHANNELS, 8, kernel_size=3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, config.output_size),
    )
    return _batch_at(layers, config.dim)


class _Recurrent(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.lstm = nn.LSTM(config.input_size, 16, batch_first=config.dim == 0)
        self.fc = nn.Linear(16, config.output_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # replicas' weights are copies: cuDNN wants them in one piece again
        self.lstm.flatten_parameters()
        steps, _ = self.lstm(x)
        result: torch.Tensor = self.fc(steps)
        return result


def _transformer(config: Config) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        16, nhead=4, dim_feedforward=32, dropout=0.0, batch_first=config.dim == 0
    )
    return nn.Sequential(
        nn.Linear(config.input_size, 16),
        nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False),
        nn.Linear(16, config.output_size),
    )


_WHOLE_MODELS: dict[str, Callable[[Config], nn.Module]] = {
    "linear": lambda config: _batch_at(nn.Linear(config.input_size, config.output_size), config.dim),
    "cnn": _cnn,
    "rnn": _Recurrent,
    "transformer": _transformer,
}


class _Partial(nn.Module):
    """Three blocks; only the middle one is split. The last is on the output device."""

    def __init__(self, config: Config, placement: Placement) -> None:
        super().__init__()
        dtype = getattr(torch, config.dtype)

        def block(width_in: int, width_out: int) -> nn.Module:
            return _batch_at(nn.Linear(width_in, width_out).to(dtype), config.dim)

        self.block1 = block(config.input_size, BLOCK).to(placement.first)
        self.block2 = placement.wrap(block(BLOCK, BLOCK).to(placement.first))
        self.block3 = block(BLOCK, config.output_size).to(placement.last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.block3(self.block2(self.block1(x)))
        return result


class _Hybrid(nn.Module):
    """An embedding on the CPU, its output moved to the first GPU, and a split linear layer there."""

    def __init__(self, config: Config, placement: Placement) -> None:
        super().__init__()
        dtype = getattr(torch, config.dtype)
        self.first = placement.first
        self.embedding = nn.Embedding(VOCABULARY, EMBEDDING).to(dtype)
        self.fc = placement.wrap(nn.Linear(EMBEDDING, config.output_size).to(dtype).to(placement.first))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.fc(self.embedding(ids).to(self.first))
        return result


def _build_partial(config: Config, placement: Placement) -> BuiltModel:
    model = _Partial(config, placement)
    return BuiltModel(model, unwrapped(model.block2), model.block2, placement.first)


def _build_hybrid(config: Config, placement: Placement) -> BuiltModel:
    model = _Hybrid(config, placement)
    return BuiltModel(model, unwrapped(model.fc), model.fc, torch.device("cpu"))


def unwrapped(wrapper: nn.Module) -> nn.Module:
    """Take the module out of DataParallel or DistributedDataParallel, if it is in one."""
    inner: nn.Module = getattr(wrapper, "module", wrapper)
    return inner


_BUILDERS = {"partial": _build_partial, "hybrid": _build_hybrid}
