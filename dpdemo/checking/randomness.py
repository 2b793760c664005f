"""Every generator that a forward may draw from: PyTorch's on each device, Python's and NumPy's."""

import contextlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

SEED = 20200101


@dataclass(frozen=True, eq=False)
class States:
    """How far each generator has come; NumPy's only where something has imported it."""

    cpu: torch.Tensor
    gpus: tuple[torch.Tensor, ...]
    python: Any
    numpy: tuple[Any, ...] | None


def states() -> States:
    """Note how far each generator has come."""
    return States(
        torch.get_rng_state(),
        tuple(torch.cuda.get_rng_state(index) for index in range(torch.cuda.device_count())),
        random.getstate(),
        None if _numpy() is None else _numpy().get_state(),
    )


def same(one: States, other: States) -> bool:
    """Return whether nothing was drawn between the one and the other."""
    return (
        all(map(torch.equal, (one.cpu, *one.gpus), (other.cpu, *other.gpus)))
        and one.python == other.python
        and _same_numpy(one.numpy, other.numpy)
    )


def _same_numpy(one: tuple[Any, ...] | None, other: tuple[Any, ...] | None) -> bool:
    if one is None or other is None:
        return one is other
    return one[1].tobytes() == other[1].tobytes() and one[2:] == other[2:]


def seed_all() -> None:
    """Start all generators alike."""
    torch.default_generator.manual_seed(SEED)  # torch.manual_seed asks each kind of device
    torch.cuda.manual_seed_all(SEED)
    random.seed(SEED)
    if _numpy() is not None:
        _numpy().seed(SEED)


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Put all generators back after a `with` block."""
    before = states()
    try:
        yield
    finally:
        torch.set_rng_state(before.cpu)
        for index, state in enumerate(before.gpus):
            torch.cuda.set_rng_state(state, index)
        random.setstate(before.python)
        if before.numpy is not None:
            _numpy().set_state(before.numpy)


def _numpy() -> Any:
    return getattr(sys.modules.get("numpy"), "random", None)
