"""The figures of a whole grid, a line at a time, by arithmetic that runs over arrays.

Let n be the number of GPUs and c = ceil(B / n) the rows of a chunk (`arithmetic/chunk.py`). Batch sizes from
(c - 1)·n + 1 to c·n share one c: a run. Two things follow, and save most of the work:

- A GPU is idle only where B <= (n - 1)·c. With B > (c - 1)·n that needs c < n.
- The last of n chunks has B - (n - 1)·c rows, at least c - n + 1. A lone sample needs c <= n.

So all marks stand in the first n runs, up to B = n². What lies above is one division per cell.

With m = -B mod n, all chunks together have room for n·c = B + m rows, and n times the last one is
B - (n - 1)·m. Over a range of batch sizes a remainder comes again and again: it is computed once.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle, repeat
from math import gcd
from operator import add, floordiv, mod, mul, sub, truediv
from typing import Any, NamedTuple

from dpdemo.reports.sweep import Line, Measure


class Axes(NamedTuple):
    """Numbers of GPUs and batch sizes, each going up; near which batch size the best cell is looked for."""

    gpus: Sequence[int]
    batch_sizes: Sequence[int]
    near: int

    @property
    def num_cells(self) -> int:
        """Count the cells."""
        return len(self.gpus) * len(self.batch_sizes)


_ONE = b"\x01"
_ZERO = b"\x00"


def sweep_line(batch_sizes: Sequence[int], num_gpus: int, measure: Measure) -> Line:
    """Compute the figure and the marks of every batch size over one number of GPUs.

    Args:
        batch_sizes: going up, each once.
        num_gpus: how many GPUs share a batch.
        measure: which figure.

    """
    in_run, above = _FIGURES[measure]
    values: array[Any] = array("q" if measure == "idle" else "d")
    idle, lone = bytearray(), bytearray()
    end = 0
    for chunk, sizes in _runs(batch_sizes, num_gpus):
        values.extend(in_run(sizes, num_gpus, chunk))
        num_idle = bisect_right(sizes, (num_gpus - 1) * chunk)
        idle += _ONE * num_idle + _ZERO * (len(sizes) - num_idle)
        lone += _lone(sizes, chunk)
        end += len(sizes)
    rest = batch_sizes[end:]
    values.extend(above(rest, num_gpus))
    idle += bytes(len(rest))
    lone += bytes(len(rest))
    return Line(num_gpus, values, bytes(idle), bytes(lone))


def _runs(batch_sizes: Sequence[int], num_gpus: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield each chunk up to `num_gpus` rows that occurs, with the batch sizes that are cut into it."""
    start = 0
    while start < len(batch_sizes):
        chunk = -(-batch_sizes[start] // num_gpus)
        if chunk > num_gpus:
            return
        end = bisect_right(batch_sizes, chunk * num_gpus, start)
        yield chunk, batch_sizes[start:end]
        start = end


def _lone(sizes: Sequence[int], chunk: int) -> bytes:
    """Mark the sizes whose last chunk is one row; chunks of one row are all so."""
    if chunk == 1:
        return _ONE * len(sizes)
    if isinstance(sizes, range):
        period = bytes(size % chunk == 1 for size in _period(sizes, chunk))
        return (period * (len(sizes) // len(period) + 1))[: len(sizes)]
    return bytes(size % chunk == 1 for size in sizes)


def _balance(sizes: Sequence[int], num_gpus: int, chunk: int) -> Iterable[float]:
    return map(truediv, sizes, repeat(num_gpus * chunk))


def _balance_above(sizes: Sequence[int], num_gpus: int) -> Iterable[float]:
    fill = _of_remainders(sizes, num_gpus, lambda rest: -rest % num_gpus)
    return map(truediv, sizes, map(add, sizes, fill))


def _weight(sizes: Sequence[int], _: int, chunk: int) -> Iterable[float]:
    if chunk == 1:
        return repeat(1.0, len(sizes))
    num_chunks = map(floordiv, _plus(sizes, chunk - 1), repeat(chunk))
    last = _of_remainders(sizes, chunk, lambda rest: rest or chunk)
    return map(truediv, sizes, map(mul, num_chunks, last))


def _weight_above(sizes: Sequence[int], num_gpus: int) -> Iterable[float]:
    """No GPU is idle here, so the last chunk is what the others leave."""
    missing = _of_remainders(sizes, num_gpus, lambda rest: (num_gpus - 1) * (-rest % num_gpus))
    return map(truediv, sizes, map(sub, sizes, missing))


def _idle(sizes: Sequence[int], num_gpus: int, chunk: int) -> Iterable[int]:
    return map(floordiv, map(sub, repeat(num_gpus * chunk), sizes), repeat(chunk))


def _idle_above(sizes: Sequence[int], _: int) -> Iterable[int]:
    return repeat(0, len(sizes))


def _of_remainders(sizes: Sequence[int], modulus: int, figure: Callable[[int], int]) -> Iterable[int]:
    """Give a figure of each size's remainder, again and again where the sizes are a range."""
    if isinstance(sizes, range):
        return cycle([figure(size % modulus) for size in _period(sizes, modulus)])
    return map(figure, map(mod, sizes, repeat(modulus)))


def _period(sizes: range, modulus: int) -> range:
    """Give the first sizes, until their remainders come again."""
    return sizes[: modulus // gcd(modulus, sizes.step)]


def _plus(sizes: Sequence[int], by: int) -> Iterable[int]:
    if isinstance(sizes, range):
        return range(sizes.start + by, sizes.stop + by, sizes.step)
    return map(add, sizes, repeat(by))


_InRun = Callable[[Sequence[int], int, int], Iterable[float]]
_Above = Callable[[Sequence[int], int], Iterable[float]]
_FIGURES: dict[Measure, tuple[_InRun, _Above]] = {
    "balance": (_balance, _balance_above),
    "weight": (_weight, _weight_above),
    "idle": (_idle, _idle_above),
}
