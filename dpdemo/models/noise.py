"""The epoch's data: seeded noise, made as it is needed and never held whole.

Sample number i is a pure function of (seed, i), so it is the same sample in whatever order, batch or process
it is drawn. torch has no generator on the CPU that can start at the i-th number, so the numbers are a hash of
their position: the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014), in 64-bit integer tensors whose products wrap as the paper's do.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from dpdemo.config.catalogue import Shape

_BLOCK_NUMBERS = 1 << 15
"""Numbers hashed at once: enough that a batch costs little, and not more than ATen's grain size
(`ATen/TensorIterator.h`, GRAIN_SIZE), above which each of these small operations would wake all cores."""


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_GAMMA = _signed(0x9E3779B97F4A7C15)
_MIX1 = _signed(0xBF58476D1CE4E5B9)
_MIX2 = _signed(0x94D049BB133111EB)
_SPREAD = math.sqrt(12.0)  # a uniform number of width sqrt(12) has variance 1


def _offset(seed: int) -> int:
    return _signed((seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) % (1 << 64))


def _mixed(bits: torch.Tensor) -> torch.Tensor:
    """Finish the hash of products with gamma, in place."""
    shifted = torch.empty_like(bits)

    def xor_shifted(shift: int) -> torch.Tensor:
        # int64 shifts carry the sign along; the mask makes the shift the paper's unsigned one
        torch.bitwise_right_shift(bits, shift, out=shifted)
        return bits.bitwise_xor_(shifted.bitwise_and_((1 << (64 - shift)) - 1))

    xor_shifted(30).mul_(_MIX1)
    xor_shifted(27).mul_(_MIX2)
    return xor_shifted(31)


@dataclass(frozen=True)
class NoiseDataset:
    """Samples of one shape, addressable by number: noise of variance 1, or ids below `vocabulary`."""

    sample: Shape
    seed: int
    dtype: torch.dtype
    vocabulary: int = 0

    def rows(self, numbers: torch.Tensor) -> torch.Tensor:
        """Make the samples with these int64 numbers: a tensor of [len(numbers), *sample]."""
        width = math.prod(self.sample)
        # the products of the positions number * width + column with gamma, taken one by one
        columns = torch.arange(width, device="cpu").mul_(_GAMMA).add_(_offset(self.seed))
        bits = _mixed((numbers * _signed(width * _GAMMA % (1 << 64))).unsqueeze(1).add(columns))
        bits = bits.view(len(numbers), *self.sample)
        if self.vocabulary:
            return bits.bitwise_and_((1 << 31) - 1).remainder_(self.vocabulary)
        return bits.bitwise_right_shift_(11).to(torch.float64).mul_(_SPREAD / (1 << 53)).to(self.dtype)


def epoch_order(data_size: int, seed: int, *, shuffle: bool) -> torch.Tensor | None:
    """Return the order of an epoch's samples; None for 0, 1, 2 and so on.

    A shuffled epoch draws torch.randperm from the seed, as torch.utils.data's samplers do, and costs what it
    costs there: 8 bytes per sample.
    """
    if not shuffle:
        return None
    return torch.randperm(data_size, generator=torch.Generator().manual_seed(seed), device="cpu")


@dataclass(frozen=True)
class BatchLoader:
    """Yields the batches of an epoch, each with its batch dimension at `dim`."""

    dataset: NoiseDataset
    data_size: int
    batch_size: int
    dim: int = 0
    drop_last: bool = False
    order: torch.Tensor | None = None

    def __len__(self) -> int:
        full, rest = divmod(self.data_size, self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[torch.Tensor]:
        stop = len(self) * self.batch_size if self.drop_last else self.data_size
        width = max(1, math.prod(self.dataset.sample))
        block = max(1, _BLOCK_NUMBERS // (width * self.batch_size)) * self.batch_size
        for start in range(0, stop, block):
            end = min(start + block, stop)
            numbers = torch.arange(start, end, device="cpu") if self.order is None else self.order[start:end]
            batches = torch.split(self.dataset.rows(numbers), self.batch_size)
            yield from batches if self.dim == 0 else (batch.movedim(0, self.dim) for batch in batches)
