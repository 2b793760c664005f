"""Every generator that a forward may draw from: PyTorch's on each device, Python's and NumPy's."""

import contextlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
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


def seed_all() -> None:
    """Start all generators alike."""
    torch.default_generator.manual_seed(SEED)  # torch.manual_seed asks each kind of device
    torch.cuda.manual_seed_all(SEED)
    random.seed(SEED)
    if _numpy() is not None:
        _numpy().seed(SEED)


def have_drawn() -> bool:
    """Return whether any number was drawn since `seed_all`."""
    is_at_start = (
        _is_at_start(torch.default_generator)
        and all(map(_is_gpu_at_start, torch.cuda.default_generators))
        and random.getstate() == _started_python()
        and (_numpy() is None or _is_numpy_at_start())
    )
    return not is_at_start


def _is_gpu_at_start(generator: Any) -> bool:
    started = torch.Generator(generator.device).manual_seed(SEED)
    return torch.equal(generator.get_state(), started.get_state())


def _is_at_start(generator: torch.Generator) -> bool:
    return torch.equal(generator.get_state(), _started_cpu())


def _is_numpy_at_start() -> bool:
    now, start = _numpy().get_state(), _started_numpy()
    return bool(now[1].tobytes() == start[1].tobytes() and now[2:] == start[2:])


@cache
def _started_cpu() -> torch.Tensor:
    return torch.Generator().manual_seed(SEED).get_state()


@cache
def _started_python() -> Any:
    return random.Random(SEED).getstate()  # noqa: S311 - it is compared, and draws nothing


@cache
def _started_numpy() -> Any:
    return _numpy().RandomState(SEED).get_state()


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
