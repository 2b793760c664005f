"""The bytes of one GPU's share of a step, where they are known without torch.

Those are the built-in models, whose sizes follow from the config, and models of which the user gives the
bytes. A test compares the built-in ones with the genuine modules.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from dpdemo.config.catalogue import BLOCK, CHANNELS, EMBEDDING, MODELS, Shape
from dpdemo.config.fields import Config
from dpdemo.results.speedupdata import Launches, Workload

ITEM_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
_HIDDEN = 16  # of rnn and transformer
_FEEDFORWARD = 32
_FILTERS = 8


@dataclass(frozen=True)
class _Size:
    """The module inside the wrapper: its numbers, buffers in bytes, and what Python handles of it."""

    numbers: Callable[[int, int], int]
    launches: Launches
    buffer_bytes: Callable[[int], int] = lambda _: 0


def _dense(width_in: int, width_out: int) -> int:
    return (width_in + 1) * width_out


def _lstm(width: int) -> int:
    return 4 * _HIDDEN * (width + _HIDDEN + 2)


_ENCODER_LAYER = (
    4 * _dense(_HIDDEN, _HIDDEN) + _dense(_HIDDEN, _FEEDFORWARD) + _dense(_FEEDFORWARD, _HIDDEN) + 4 * _HIDDEN
)
_BLOCK = Launches(forward=1, backward=3, modules=1, tensors=2)
_SIZES = {
    "linear": _Size(_dense, Launches(forward=1, backward=6, modules=1, tensors=2)),
    "partial": _Size(lambda _i, _o: _dense(BLOCK, BLOCK), _BLOCK),
    "hybrid": _Size(lambda _i, o: _dense(EMBEDDING, o), _BLOCK),
    "cnn": _Size(
        lambda _, o: (9 * CHANNELS + 1) * _FILTERS + 2 * _FILTERS + _dense(_FILTERS, o),
        Launches(forward=7, backward=15, modules=7, tensors=9),  # with BatchNorm's three buffers
        buffer_bytes=lambda item: 2 * _FILTERS * item + 8,
    ),
    "rnn": _Size(
        lambda i, o: _lstm(i) + _dense(_HIDDEN, o), Launches(forward=7, backward=18, modules=3, tensors=6)
    ),
    "transformer": _Size(
        lambda i, o: _dense(i, _HIDDEN) + 2 * _ENCODER_LAYER + _dense(_HIDDEN, o),
        Launches(forward=32, backward=103, modules=25, tensors=28),
    ),
}


def builtin_workload(config: Config) -> Workload:
    """Return what one GPU's batch of a built-in model weighs; its loss is computed on what was gathered."""
    model, size, item = MODELS[config.model], _SIZES[config.model], ITEM_BYTES[config.dtype]
    width_in, width_out = config.input_size, config.output_size
    numbers = size.numbers(width_in, width_out)

    def batch_bytes(shape: Callable[[int, int], Shape]) -> int:
        return config.batch_size * prod(shape(width_in, width_out)) * item

    output_bytes = batch_bytes(model.inner_output or model.output)
    input_bytes = batch_bytes(model.inner_input or model.input)
    return Workload(
        name=config.model,
        rows=config.batch_size,
        num_parameters=numbers,
        parameter_bytes=numbers * item,
        gradient_bytes=numbers * item,
        buffer_bytes=size.buffer_bytes(item),
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        output_gradient_bytes=output_bytes,
        input_gradient_bytes=input_bytes if model.wrapped else 0,
        launches=size.launches,
    )


def given_workload(  # noqa: PLR0913 - a size each
    num_parameters: int,
    *,
    dtype: str = "float32",
    output_bytes: int = 0,
    input_bytes: int = 0,
    rows: int | None = None,
    launches: Launches | None = None,
) -> Workload:
    """Return the workload of a model of which only the bytes are known; its loss is computed inside it.

    Args:
        num_parameters: all of them are trained.
        dtype: the type of parameters and gradients, as a config names it.
        output_bytes: of one GPU's outputs, which DataParallel gathers on GPU 0; with the loss outside the
            model their gradients go back, so that the outputs count twice.
        input_bytes: of one GPU's inputs.
        rows: in one GPU's batch.
        launches: what Python handles of each replica, if known.

    """
    weight = num_parameters * ITEM_BYTES[dtype]
    return Workload(
        name="given sizes",
        rows=rows,
        num_parameters=num_parameters,
        parameter_bytes=weight,
        gradient_bytes=weight,
        buffer_bytes=0,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        launches=launches,
    )
