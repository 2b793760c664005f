"""Build the model of a TARGET, and make batches of inputs that the user did not give."""

from collections.abc import Callable

import torch
from torch import nn

from dpdemo.config.catalogue import MODELS
from dpdemo.config.load import make_config
from dpdemo.errors import UsageError, about
from dpdemo.models.inputs import Batches, batches_for
from dpdemo.models.modules import Placement, build
from dpdemo.models.user import Given, find_object, make_model


def find_model(target: str) -> Given:
    """Find the model that a target names, or what builds it; a built-in one by its name.

    Raises:
        UsageError: if there is none.

    """
    with about("model"):
        return _builder(target) if target in MODELS else find_object(target)


def _builder(name: str) -> Callable[[], nn.Module]:
    cpu = torch.device("cpu")
    config = make_config({"model": name})
    return lambda: build(config, Placement(lambda module: module, cpu, cpu)).model


def batches_of_target(given: Given, target: str, size: int | None, default: int) -> Batches:
    """Make the batches of a target that nobody gave inputs for: its own, or those that its first layer takes.

    Raises:
        UsageError: if it has none and the layers do not tell.

    """
    with about("model"):
        model, found_inputs = make_model(given, target)
    found = batches_for(model, None, found_inputs, size, default)
    if found is None:
        raise UsageError(
            f"expected inputs of `{target}`, got none, and its layers do not tell",
            key="input",
            hint="give the shape of each argument, such as 32x128 and mask=32x128:bool",
        )
    return found
