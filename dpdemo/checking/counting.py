"""What a replica's loss is the mean of: labels that are not masked, a mask's ones, rows.

Such a loss is right once each replica's number is weighed by its count. Which it is, the gradients tell.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import starmap

import torch

from dpdemo.checking.evidence import Counted, LossGradients
from dpdemo.checking.leaves import flatten_arguments
from dpdemo.models.inputs import Arguments

_OF_LABELS = (-100, 0, -1, 255)
"""What labels that do not count are, as a rule."""
_LIKELY = "!= -100)"
"""What PyTorch's losses leave out if they are not told otherwise: it comes first."""
_MOST_CLASSES = 32
"""Labels of so few values may each be what does not count."""
_EXACT = 5e-4
"""The right count leaves round-off; one that is further off is right for a part of the loss at most."""
_Count = Callable[[torch.Tensor], torch.Tensor]


def counted_by(
    forward: Callable[..., object], chunks: Sequence[Arguments], loss: LossGradients
) -> Counted | None:
    """Find the count by which the replicas' losses must be weighed to have the gradients of one GPU.

    Args:
        forward: the model's, whose arguments the chunks are.
        chunks: what reached each replica.
        loss: the gradients of each replica's loss.

    """
    given = [dict(flatten_arguments(forward, *chunk)) for chunk in chunks]
    best, least = None, min(_EXACT, loss.error(loss.mean) / 4)
    known = [path for path in given[0] if all(isinstance(one.get(path), torch.Tensor) for one in given)]
    ways = [(path, code, count) for path in known for code, count in _counts([one[path] for one in given])]
    for path, code, count in sorted(ways, key=lambda way: _LIKELY not in way[1]):
        counts = [float(count(one[path])) for one in given]
        error = loss.error(tuple(one / sum(counts) for one in counts)) if sum(counts) > 0 else math.inf
        if error < least:
            best, least = Counted(path, code), min(least, error / 2)  # a later one must be clearly better
    return best


def _counts(parts: Sequence[torch.Tensor]) -> Iterator[tuple[str, _Count]]:
    """List what could be counted in chunks of a tensor, as code with the chunk as `{}`, and as a function."""
    leaf = parts[0]
    if leaf.dim() == 0 or leaf.numel() == 0 or leaf.is_complex() or leaf.layout != torch.strided:
        return
    yield "torch.tensor(len({}))", lambda part: torch.tensor(len(part), device="cpu")
    if not leaf.is_floating_point() and leaf.dtype != torch.bool:
        values = {value for part in parts for value in torch.unique(part).tolist()}
        masks = [one for one in _OF_LABELS if one in values]
        masks += sorted(values - {*masks}) if len(values) <= _MOST_CLASSES else []
        yield from starmap(_not_masked, ((masked, way) for way in _parts(leaf) for masked in masks))
    if leaf.min() >= 0:
        for way in _parts(leaf):
            yield f"{{}}{way}.sum()", lambda part, way=way: (part[:, 1:] if way else part).sum()  # type: ignore[misc] # of this way


def _parts(leaf: torch.Tensor) -> tuple[str, ...]:
    """List what of a tensor may count: all of it; of rows of labels, those that are predicted."""
    return ("", "[:, 1:]") if leaf.dim() > 1 and leaf.shape[1] > 1 else ("",)


def _not_masked(masked: int, way: str) -> tuple[str, _Count]:
    return f"({{}}{way} != {masked}).sum()", lambda part: ((part[:, 1:] if way else part) != masked).sum()
