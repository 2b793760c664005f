"""The built-in models by their shapes alone: what a prediction must know of them, without torch.

`models/modules.py` builds the modules themselves; a test compares the two.
"""

from collections.abc import Callable
from typing import NamedTuple

Shape = tuple[int, ...]

STEPS = 8
"""Time steps of one sample of `rnn` and `transformer`."""
CHANNELS = 3
"""Colour channels of one sample of `cnn`; an image is input_size pixels wide and high."""
VOCABULARY = 1000
"""Rows of the embedding of `hybrid`, as in PyTorch's tutorial."""
EMBEDDING = 10
"""Columns of the embedding of `hybrid`."""
BLOCK = 20
"""Width of the middle block of `partial`, the one that is split."""


class ModelShapes(NamedTuple):
    """One sample's shapes, without the batch, as functions of (input_size, output_size).

    `wrapped` is the path of the submodule inside DataParallel, "" for the whole model; `inner_input` and
    `inner_output` are its shapes. The batch can be in dimension 0 or 1 of each.
    """

    summary: str
    input: Callable[[int, int], Shape]
    output: Callable[[int, int], Shape]
    wrapped: str = ""
    inner_input: Callable[[int, int], Shape] | None = None
    inner_output: Callable[[int, int], Shape] | None = None
    reads_cpu_input: bool = False


def _features(inputs: int, _: int) -> Shape:
    return (inputs,)


def _outputs(_: int, outputs: int) -> Shape:
    return (outputs,)


def _text(inputs: int, _: int) -> Shape:
    return (STEPS, inputs)


def _steps(_: int, outputs: int) -> Shape:
    return (STEPS, outputs)


def _image(inputs: int, _: int) -> Shape:
    return (CHANNELS, inputs, inputs)


MODELS = {
    "linear": ModelShapes("one linear layer, as in the tutorial", _features, _outputs),
    "partial": ModelShapes(
        "three linear blocks, of which only the middle one is wrapped",
        _features,
        _outputs,
        wrapped="block2",
        inner_input=lambda _i, _o: (BLOCK,),
        inner_output=lambda _i, _o: (BLOCK,),
    ),
    "hybrid": ModelShapes(
        "an embedding that stays on the CPU, then a wrapped linear layer on the GPUs",
        _features,
        lambda i, o: (i, o),
        wrapped="fc",
        inner_input=lambda i, _: (i, EMBEDDING),
        inner_output=lambda i, o: (i, o),
        reads_cpu_input=True,
    ),
    "cnn": ModelShapes("convolution, BatchNorm, pooling and a linear layer", _image, _outputs),
    "rnn": ModelShapes("an LSTM and a linear layer at every time step", _text, _steps),
    "transformer": ModelShapes("a two-layer transformer encoder", _text, _steps),
}


def batched(sample: Shape, rows: int, dim: int) -> Shape:
    """Put the batch into a sample's shape, at `dim`."""
    return (*sample[:dim], rows, *sample[dim:])
