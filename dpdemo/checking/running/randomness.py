"""Every generator that a forward may draw from: PyTorch's on each device, Python's and NumPy's."""

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

SEED = 20200101


def seed_all() -> None:
    """Start all generators alike."""
    torch.default_generator.manual_seed(SEED)  # torch.manual_seed asks each kind of device
    torch.cuda.manual_seed_all(SEED)
    random.seed(SEED)
    if _numpy() is not None:
        _numpy().seed(SEED)


def progress() -> tuple[object, ...]:
    """List how far each generator has come, as values that can be compared."""
    torchs = [
        generator.get_state() for generator in (torch.default_generator, *torch.cuda.default_generators)
    ]
    numpys = () if _numpy() is None else _numpy().get_state()
    numbers = [state.tolist() for state in torchs]  # NumPy may be missing
    return (
        *numbers,
        random.getstate(),
        *(getattr(array, "tobytes", lambda state=array: state)() for array in numpys),
    )


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Put all generators back after a `with` block."""
    devices = range(torch.cuda.device_count())
    python, numpys = random.getstate(), None if _numpy() is None else _numpy().get_state()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        if numpys is not None:
            _numpy().set_state(numpys)


def _numpy() -> Any:
    return getattr(sys.modules.get("numpy"), "random", None)
