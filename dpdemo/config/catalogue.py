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


MODELS = {
    "linear": ModelShapes("one linear layer, as in the tutorial", lambda i, _: (i,), lambda _, o: (o,)),
    "partial": ModelShapes(
        "three linear blocks, of which only the middle one is wrapped",
        lambda i, _: (i,),
        lambda _, o: (o,),
        wrapped="block2",
        inner_input=lambda _i, _o: (BLOCK,),
        inner_output=lambda _i, _o: (BLOCK,),
    ),
    "hybrid": ModelShapes(
        "an embedding that stays on the CPU, then a wrapped linear layer on the GPUs",
        lambda i, _: (i,),
        lambda i, o: (i, o),
        wrapped="fc",
        inner_input=lambda i, _: (i, EMBEDDING),
        inner_output=lambda i, o: (i, o),
        reads_cpu_input=True,
    ),
    "cnn": ModelShapes(
        "convolution, BatchNorm, pooling and a linear layer",
        lambda i, _: (CHANNELS, i, i),
        lambda _, o: (o,),
    ),
    "rnn": ModelShapes(
        "an LSTM and a linear layer at every time step", lambda i, _: (STEPS, i), lambda _, o: (STEPS, o)
    ),
    "transformer": ModelShapes(
        "a two-layer transformer encoder", lambda i, _: (STEPS, i), lambda _, o: (STEPS, o)
    ),
}


def batched(sample: Shape, rows: int, dim: int) -> Shape:
    """Put the batch into a sample's shape, at `dim`."""
    return (*sample[:dim], rows, *sample[dim:])
