"""What `dpdemo memory` was asked, checked before torch is loaded."""

import difflib
from dataclasses import dataclass, replace

from dpdemo.bytesize import parse_size
from dpdemo.cli.capacity import read_gpu_memory
from dpdemo.cli.options import Settings
from dpdemo.config.fields import Config
from dpdemo.config.gpus import card_named, check_number
from dpdemo.config.inputspec import read_input
from dpdemo.config.load import make_config
from dpdemo.errors import UsageError, about, placed
from dpdemo.reports.memory import LOSSES, Optimizer, Training, ZeroGrad
from dpdemo.wording import show


@dataclass(frozen=True)
class Request:
    """A step to predict, or with `fit` the largest batch to find."""

    config: Config
    training: Training
    gpu_memory: list[int] | None
    inputs: list[str] | str | None
    fit: bool
    gpu: str | None = None
    reserve: str | None = None
    seq_len: int | None = None
    image_size: int | None = None
    numbers: bool = False


def with_target(settings: Settings, target: str) -> Settings:
    """Take the argument TARGET for the model, as if `--model` had named it.

    Raises:
        UsageError: both are given, or there is no such model.

    """
    if not target:
        return settings
    if "model" in settings.config.model_fields_set:
        raise UsageError("expected one of them, got both", key="target model")
    with placed(settings.where):
        return replace(settings, config=make_config({**settings.config.values(), "model": target}))


def read_request(  # noqa: PLR0913 - an option each
    settings: Settings,
    training: Training,
    *,
    gpu_memory: str | None,
    fit: bool,
    shapes: list[str],
    function: str | None,
    gpu: str | None = None,
    reserve: str | None = None,
) -> Request:
    """Check the options that have no meaning alone.

    Raises:
        UsageError: naming the option, what was expected and what was got.

    """
    sizes = read_gpu_memory(gpu_memory, _num_gpus(settings))
    if gpu is not None:
        card_named(gpu)
    if reserve is not None and reserve != "0":
        with about("reserve"):
            parse_size(reserve)
    if fit and sizes is None and gpu is None:
        raise UsageError(
            "expected what each GPU can hold, got nothing",
            key="gpu_memory",
            hint="--fit finds the largest batch for GPUs of a size: --gpu-memory 24GiB, or --gpu A100-80GB",
        )
    if shapes and function is not None:
        raise UsageError(
            "expected one of them, got both",
            key="input inputs",
            hint="--input gives shapes, --inputs a function that returns what --input cannot say",
        )
    if function is not None and not _is_target(function):
        raise UsageError(f"expected `pkg.mod:function`, got {show(function)}", key="inputs")
    return Request(batch_of_inputs(settings, shapes), training, sizes, shapes or function, fit, gpu, reserve)


def _num_gpus(settings: Settings) -> int:
    """Count the GPUs that the batch is split over; one that is named twice is one GPU."""
    gpus = settings.config.gpus
    if gpus is None:
        raise UsageError("expected a number of GPUs, got none", key="gpus", hint="say how many: --gpus 4")
    if gpus == "all":
        raise UsageError(
            "expected a count such as 4, got `all`",
            key="gpus",
            hint="say how many: real GPUs are not looked at",
        )
    highest = gpus - 1 if isinstance(gpus, int) else max(gpus)
    check_number(max(highest, settings.config.output_device or 0) + 1)
    return gpus if isinstance(gpus, int) else len(set(gpus))


def read_training(
    optimizer: Optimizer | None,
    loss: str | None,
    *,
    amp: bool,
    inference: bool,
    zero_grad: ZeroGrad | None = None,
) -> Training:
    """Check what is assumed of the step.

    Raises:
        UsageError: an unknown loss, or an optimizer or a loss where nothing is trained.

    """
    for option, given in (("optimizer", optimizer), ("loss", loss), ("zero_grad", zero_grad)):
        if inference and given is not None:
            raise UsageError(
                "expected one of them, got both",
                key=f"inference {option}",
                hint=f"inference has no {option}: leave one of them out",
            )
    if loss is not None and loss not in LOSSES and not _is_target(loss):
        near = difflib.get_close_matches(loss, LOSSES, n=1)
        raise UsageError(
            f"expected {', '.join(LOSSES)} or `pkg.mod:function`, got {show(loss)}",
            key="loss",
            hint=f"did you mean `{near[0]}`?" if near else "a function gets the output and returns the loss",
        )
    return Training(
        optimizer or "adamw", loss or "auto", amp=amp, inference=inference, zero_grad=zero_grad or "before"
    )


def _is_target(text: str) -> bool:
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def batch_of_inputs(settings: Settings, shapes: list[str]) -> Config:
    """Take the batch size from the first shape, unless the user said another."""
    config = settings.config
    written = [read_input(text) for text in shapes]
    if not written or "batch_size" in config.model_fields_set or len(written[0].shape) <= config.dim:
        return config
    rows = written[0].shape[config.dim]
    if not rows:
        raise UsageError(
            f"expected a batch of 1 or more, got {shapes[0]!r}",
            key="input",
            hint=f"number {config.dim + 1} of the first shape is the batch size",
        )
    return make_config({**config.values(), "batch_size": rows}, settings.where)
