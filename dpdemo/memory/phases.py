"""Which of DataParallel's steps a program is in, noted beside each peak of the ledger."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from dpdemo.observation.steps import around
from dpdemo.reports.memory import Phase
from dpdemo.virtual import VirtualGpus

_STEPS: dict[str, Phase] = {
    "scatter_kwargs": "scatter",
    "replicate": "replicate",
    "parallel_apply": "forward",
    "gather": "gather",
}


@contextmanager
def phase(gpus: VirtualGpus, name: Phase) -> Iterator[None]:
    """Note that the program is in this phase, for the length of a `with` block."""
    before, gpus.phase = gpus.phase, name
    try:
        yield
    finally:
        gpus.phase = before


@contextmanager
def noting_phases(gpus: VirtualGpus) -> Iterator[None]:
    """Note the steps of every DataParallel, for the length of a `with` block."""
    with around(**{step: partial(_noting, gpus, name) for step, name in _STEPS.items()}):
        yield


def _noting(
    gpus: VirtualGpus, name: Phase, proceed: Callable[..., object], *args: object, **kwargs: object
) -> object:
    with phase(gpus, name):
        return proceed(*args, **kwargs)
