"""Scratch memory that cuDNN's convolutions take during a call, worked out from what its algorithms need.

Which algorithm runs is cuDNN's choice, by heuristics that cannot be asked without a GPU. Two need scratch of
a size that matters, and the rest next to none:

- *Winograd, not fused*, for 3x3 kernels in float32 without tensor cores: input, kernel and output are
  transformed into tiles of 6x6 numbers for each 4x4 of the output (Lavin and Gray, "Fast Algorithms for
  Convolutional Neural Networks", 2015, section 4.2: F(4x4, 3x3)). cuDNN takes it where channels are many; for
  few it has a fused kernel.
- *tensor cores*, for half precision and, from Ampere on, float32 (TF32, `torch.backends.cudnn.allow_tf32`):
  their kernels want channels last, so operands that are laid out otherwise are copied (cuDNN's documentation,
  "Tensor Core Operations", on conversions of layout).

If there is no room for it, PyTorch runs an algorithm without scratch (`AlgoIterator::try_all`,
aten/src/ATen/native/cudnn/Conv_v7.cpp): so this is what a call would like to have, and its least is nothing.
"""

import math
from typing import Any

import torch

aten = torch.ops.aten
_TILE, _OUTPUT = 36, 4  # numbers in a tile; how wide the part of the output is that one tile makes
_MANY_CHANNELS = 128
_HALF = (torch.float16, torch.bfloat16)
_TENSOR_CORES_FOR_FLOAT32 = 8  # the major compute capability of Ampere


def scratch_bytes(func: Any, args: tuple[Any, ...], result: Any, capability: int) -> int:
    """Return the bytes that a call of `func` takes while it runs on a GPU of this major capability."""
    if func is aten.convolution.default:
        data, weight, _, *options = args
        output = result
    else:
        output, data, weight, _, *options = args
    stride, _, dilation, is_transposed, _, groups = options[:6]
    if weight.dtype in _HALF or (capability >= _TENSOR_CORES_FOR_FLOAT32 and torch.backends.cudnn.allow_tf32):
        is_fit = groups == 1 and not data.is_contiguous(memory_format=torch.channels_last)
        numbers = data.numel() + weight.numel() + output.numel()
        return int(is_fit * numbers * weight.element_size())
    wide, narrow = weight.shape[1], weight.shape[0]
    is_fit = (
        weight.shape[2:] == (3, 3)
        and set(stride) == set(dilation) == {1}
        and not is_transposed
        and groups == 1
        and weight.dtype is torch.float32
        and min(wide, narrow) >= _MANY_CHANNELS
    )
    tiles = output.shape[0] * math.prod(-(-size // _OUTPUT) for size in output.shape[2:])
    return int(is_fit * _TILE * weight.element_size() * (tiles * (wide + narrow) + wide * narrow))


CONVOLUTIONS = frozenset({aten.convolution.default, aten.convolution_backward.default})
