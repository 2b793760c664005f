"""The launch of PyTorch's kernels for random numbers: the card's thread that draws each element.

The rules are those of ATen/native/cuda/DistributionTemplates.h (2.13): `calc_execution_policy`, and the loop
of `distribution_elementwise_grid_stride_kernel`. Thread `t` of `T` draws from Philox's sequence `t`; its
first call serves elements t, t + T, t + 2T, t + 3T, its second call begins at 4T. So a tensor of no more
elements than a card has threads takes one word of each thread's first call, and the card does not show.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dpdemo.virtual.cuda_random.philox import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from dpdemo.arithmetic.cards import Card
    from dpdemo.virtual.cuda_random.curand import Source, Words

    Finish = Callable[[Tensor], Tensor]

BLOCK = 256
CHUNK = 2**15  # threads at a time: what is computed on stays in the processor's cache
_FEW = 16  # up to so many threads Python's own integers are faster than tensors
_ASIDE = 2**32 - 1  # a sequence that no thread draws from
CPU = torch.device("cpu")
_aten = torch.ops.aten
# Taken before they are replaced; what is made here is on the CPU, whatever the default device is.
_tensor: Any = torch.tensor


class Stream:
    """The place of a GPU or a generator in its random numbers: a seed and an offset (CUDAGeneratorImpl)."""

    def __init__(self, seed: int = 0, offset: int = 0) -> None:
        self.seed = seed
        self.offset = offset
        self._taking = threading.Lock()

    def take(self, increment: int) -> Place:
        """Return where the next kernel draws, and go on by the `increment` that it may use up."""
        with self._taking:
            place = Place(self.seed, self.offset // 4)
            self.offset += -(-increment // 4) * 4
        return place


class Place(NamedTuple):
    """The start of a kernel's threads: one seed for all, a sequence for each."""

    seed: int
    counter: int

    def words(self, call: int, first: int, last: int) -> Words:
        """Return the four words of threads `first` to `last` - 1, in their call number `call`."""
        if last - first <= _FEW:
            each = [words(self.counter + call, thread, self.seed) for thread in range(first, last)]
            return _tensor(each, device=CPU).unbind(1)  # type: ignore[no-any-return]
        threads = _aten.arange.start(first, last, dtype=torch.int64, device=CPU)
        return words(self.counter + call, threads, self.seed)

    def cpu_generator(self) -> torch.Generator:
        """Make a generator of the CPU, seeded with words that no thread of a kernel draws."""
        low, high, *_ = words(self.counter, _ASIDE, self.seed)
        return torch._C.Generator().manual_seed(high << 32 | low)


class NumberSource(NamedTuple):
    """The source of an operator's numbers: those of `stream`, laid out as `card` does."""

    stream: Stream
    card: Card

    def launch(self, numel: int, unroll: int) -> tuple[Place, int]:
        """Take a kernel's numbers, `unroll` per call; return where they begin, and its threads."""
        threads = min(-(-numel // BLOCK), self.card.num_blocks) * BLOCK
        return self.stream.take(-(-numel // (threads * unroll)) * 4), threads


def as_dtype(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `numbers` as `dtype`, unchanged if they are that already."""
    if numbers.dtype is dtype:
        return numbers
    result: Tensor = _aten._to_copy.default(numbers, dtype=dtype)
    return result


@functools.lru_cache(256)
def rounded(value: float, dtype: torch.dtype) -> float:
    """Return `value` as `dtype` holds it."""
    if dtype is torch.float64:
        return float(value)
    return float(_aten.full.default([], value, dtype=dtype, device=CPU).item())


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which a kernel computes what it stores as `dtype`."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def empty(shape: Any, dtype: torch.dtype) -> Tensor:
    """Return a tensor to be filled; on the CPU to C++, as every tensor of a virtual GPU."""
    made: Tensor = _aten.empty.memory_format(shape, dtype=dtype, device=CPU)
    return made


def fill(target: Tensor, source: Source, finish: Finish, drawing: NumberSource) -> None:
    """Fill `target` with the numbers of `source`, each of which goes through `finish`, in memory's order."""
    if not target.numel():
        return
    ordered = target.permute(by_stride(target))
    if ordered.is_contiguous():
        _fill_flat(ordered.view(-1), source, finish, drawing)
    else:
        drawn = empty(ordered.shape, target.dtype)
        _fill_flat(drawn.view(-1), source, finish, drawing)
        _aten.copy_.default(ordered, drawn)


def by_stride(tensor: Tensor) -> list[int]:
    """Return the dimensions, the one that steps over the least memory last, as TensorIterator goes."""
    strides = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda dim: -strides[dim])


def _fill_flat(flat: Tensor, source: Source, finish: Finish, drawing: NumberSource) -> None:
    numel = flat.numel()
    place, threads = drawing.launch(numel, source.unroll)
    for call, start in enumerate(range(0, numel, threads * source.unroll)):
        for first, last in chunks(min(threads, numel - start)):
            made = source.numbers(place.words(call, first, last))
            for begin, numbers in zip(range(start + first, numel, threads), made, strict=False):
                count = min(last - first, numel - begin)
                _aten.copy_.default(flat.narrow(0, begin, count), finish(numbers.narrow(0, 0, count)))


def chunks(threads: int) -> Iterator[tuple[int, int]]:
    """Cut `threads` into ranges that fit into the cache."""
    for first in range(0, threads, CHUNK):
        yield first, min(first + CHUNK, threads)
