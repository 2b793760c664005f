"""A step of one GPU, measured where there is one: forward, loss, backward and optimizer, as in a program."""

import time
import warnings
from collections.abc import Callable

import torch
from torch import nn

from dpdemo.config.fields import Config
from dpdemo.errors import DpdemoError, RunError, UsageError
from dpdemo.memory.inputs import Given
from dpdemo.memory.losses import make_loss
from dpdemo.models.failure import take_apart, users_code
from dpdemo.models.inputs import Arguments, Batches, InputSpec, as_arguments, drawing
from dpdemo.models.modules import build
from dpdemo.models.user import find_object, load_with_inputs
from dpdemo.reports.devices import Devices
from dpdemo.reports.speedup import Anchor
from dpdemo.running.dp import place
from dpdemo.running.epoch import make_dataset

WARM_UP = 5
STEPS = 20


def measure_step(
    config: Config, inputs: Given | str = None, *, loss: str = "auto", device: torch.device | None = None
) -> Anchor:
    """Measure the training step of one GPU with the config's batch: the mean of 20 steps, after 5 others.

    Args:
        config: the model and its batch.
        inputs: as for `predict_memory`, but with numbers: shapes are filled with random ones.
        loss: as in a `Training`.
        device: the GPU; the first visible one if left out.

    Raises:
        UsageError: no GPU is visible, or the model cannot be built.
        RunError: the model fails.

    """
    if device is None:
        if not torch.cuda.is_available():
            raise UsageError(
                "expected a GPU to measure on, got none - at option `--measure`",
                hint="measure where one is, and say it here: --one-gpu-step 49ms",
            )
        device = torch.device("cuda", 0)
    step = _make_step(config, inputs, loss, device)
    try:
        with warnings.catch_warnings(), users_code():
            warnings.simplefilter("ignore")  # a model's warnings are no part of its time
            return Anchor(ms=_mean_ms(step, device))
    except DpdemoError:
        raise
    except Exception as error:
        raise RunError(
            f"expected the model to take a batch of {config.batch_size}, got {take_apart(error)}"
        ) from error


def _mean_ms(step: Callable[[], None], device: torch.device) -> float:
    for _ in range(WARM_UP):
        step()
    _wait_for(device)
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    _wait_for(device)
    return (time.perf_counter() - began) * 1e3 / STEPS


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _make_step(config: Config, inputs: Given | str, loss: str, device: torch.device) -> Callable[[], None]:
    found: list[object] = []

    def load(target: str, config: Config) -> nn.Module:
        model, own_inputs = load_with_inputs(target, config)
        found.append(own_inputs)
        return model

    devices = Devices.cpu() if device.index is None else Devices.of("cuda", (device.index,))
    built = build(config, place(config, devices), load)  # over one device DataParallel only calls the module
    args, kwargs = _on_host(config, inputs, found)
    loss_of = make_loss(loss)
    optimizer = torch.optim.AdamW(built.model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        moved = [_to(part, built.input_device) for part in args]
        named = {name: _to(part, built.input_device) for name, part in kwargs.items()}
        loss_of(built.model(*moved, **named)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _on_host(config: Config, inputs: Given | str, found: list[object]) -> Arguments:
    """Make the batch with its numbers, on the host, as a loader hands it over."""
    given = find_object(inputs, "option `--inputs`") if isinstance(inputs, str) else inputs
    if given is None and found and found[0] is not None:
        given = found[0]
        if not callable(given):
            return Batches.from_example(given, config.dim).arguments(config.batch_size)
    if isinstance(given, list):
        return Batches.from_specs([InputSpec.parse(text) for text in given]).arguments(config.batch_size)
    if given is not None:
        return as_arguments(drawing(given)(config.batch_size))
    rows = make_dataset(config).rows(torch.arange(config.batch_size, device="cpu"))
    return (rows.movedim(0, config.dim),), {}


def _to(value: object, device: torch.device) -> object:
    return value.to(device) if hasattr(value, "to") else value
