"""DataParallel's results and gradients against those of one device."""

import math
from dataclasses import dataclass, replace

from dpdemo.checking.evidence.calls import RaisedError
from dpdemo.results.findings import Place

UNEQUAL = 2e-3
"""Gradients that are farther than this from those of one GPU are others, and not rounded."""
COARSE = 5e-2
"""So where half precision rounds them."""


@dataclass(frozen=True, slots=True)
class LossGradients:
    """The parameters' gradients g of a loss on one GPU, and g_i of each replica's number, by dot products.

    So the gradients of any weighted sum of the replicas' losses can be compared with those of one GPU:
    |Σ w_i g_i - g|² = Σ w_i w_j g_i·g_j - 2 Σ w_i g_i·g + g·g.
    """

    square: float
    """g·g"""
    dots: tuple[float, ...]
    """g_i·g"""
    products: tuple[tuple[float, ...], ...]
    """g_i·g_j"""
    is_sum: bool = True
    """Whether some weights of the losses give the gradients of one GPU: it is a sum over samples."""
    unequal: float = UNEQUAL
    """How far gradients may be from those of one GPU for rounding."""

    def factor(self, weights: tuple[float, ...]) -> float:
        """Return how many times those of one GPU the gradients are, in its direction."""
        return sum(w * dot for w, dot in zip(weights, self.dots, strict=True)) / self.square

    def error(self, weights: tuple[float, ...]) -> float:
        """Return how far the gradients are from those of one GPU, as a share of their length."""
        rows = zip(weights, self.products, strict=True)
        mixed = sum(w * sum(v * p for v, p in zip(weights, row, strict=True)) for w, row in rows)
        left_over = mixed - 2 * self.square * self.factor(weights) + self.square
        return math.sqrt(max(left_over, 0.0) / self.square)

    @property
    def sum(self) -> tuple[float, ...]:
        """The weights of `.sum()`."""
        return (1.0,) * len(self.dots)

    @property
    def mean(self) -> tuple[float, ...]:
        """The weights of `.mean()`."""
        return (1 / len(self.dots),) * len(self.dots)


@dataclass(frozen=True, slots=True)
class Comparison:
    """DataParallel's result against that of one device (`observing/compare.py`); None if not compared.

    `differing` is the path of what differs first, in numbers, shape or structure: "" is the result itself.
    """

    values_equal: bool | None = None
    differing: str | None = None
    largest_difference: float = 0.0
    equals_chunkwise: bool | None = None
    blamed: tuple[str, ...] = ()
    """Arguments that must not be cut: with them whole, results are those of one GPU."""
    gradients_equal: bool | None = None
    loss_not_finite: bool = False
    single_finite: bool = True
    loss: LossGradients | None = None
    loss_path: str | None = None
    single_backward_raised: RaisedError | None = None
    """What going backward raised where DataParallel is not to blame, so that no gradients were compared."""
    backward_raised: RaisedError | None = None
    """What going backward raised under DataParallel, though it did not on one GPU."""
    better_dim: int | None = None
    """Another dimension along which the batch can be cut with one GPU's results."""
    batch_dims: tuple[tuple[str, int], ...] = ()
    """The dimension on which each argument has the batch, where it is not the same one for all."""
    reordered: tuple[tuple[str, int], ...] = ()
    """Results whose rows are in another order, each with the number of steps that it was flattened from."""
    summed: tuple[str, ...] = ()
    """Numbers of one GPU's result to which the replicas' add up, as a count or a sum of losses does."""
    of_the_batch: tuple[str, ...] = ()
    """Numbers that are neither the sum nor the mean of the replicas': where chunks are unequal, means too."""
    joined: tuple[str, ...] = ()
    """Objects in the result that gather has made anew, as it does a cache that iterates over tensors."""
    needed_whole: tuple[str, ...] = ()
    """Arguments of which a replica needs all: it raised, and with all of them does not."""
    mixing: Place | None = None
    """The line of forward that first mixes samples, if that is why results differ and it is known."""
    is_of_state: bool = False
    """Whether samples mix in state alone: once it has seen the batch, the model is right about each chunk."""

    @property
    def is_along_another(self) -> bool:
        """Whether the batch, or that of some argument, is on another dimension than the one that is cut."""
        return self.better_dim is not None or bool(self.batch_dims)

    def without_gradients(self) -> "Comparison":
        """Leave out what going backward showed."""
        return replace(
            self, gradients_equal=None, loss_not_finite=False, single_finite=True, loss=None, loss_path=None,
            single_backward_raised=None, backward_raised=None,
        )  # fmt: skip
