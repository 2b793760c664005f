"""Arguments of DataParallel's steps, read as torch.nn.parallel reads them."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

Device = int | str | torch.device


def of_each_replica(
    inputs: Iterable[object], kwargs_tup: Iterable[Mapping[str, object]] | None
) -> list[tuple[Any, Any]]:
    """Pair what each replica gets by position and by name, also where PyTorch refuses their numbers.

    A lone value need not stand in a tuple (`_worker` in torch/nn/parallel/parallel_apply.py).
    """
    pairs = itertools.zip_longest(inputs, kwargs_tup or (), fillvalue=())
    return [(args if isinstance(args, (list, tuple)) else (args,), named or {}) for args, named in pairs]


def as_one(args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """Join arguments to one value: a lone one as it is, several by their places and keywords."""
    if kwargs:
        return dict[object, object]([*enumerate(args), *kwargs.items()])
    return args[0] if len(args) == 1 else args


def index_of(device: Device) -> int:
    """Return the number of a GPU, however it is named."""
    return device if isinstance(device, int) else torch.device(device).index or 0
