"""Which of DataParallel's steps a program is at, noted beside each peak of the ledger."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from dpdemo.memoryreport import Phase
from dpdemo.virtual import VirtualGpus

_STEPS: dict[str, Phase] = {
    "scatter": "scatter",
    "replicate": "replicate",
    "parallel_apply": "forward",
    "gather": "gather",
}


@contextmanager
def phase(gpus: VirtualGpus, name: Phase) -> Iterator[None]:
    """Note that the program is at this phase, for the length of a `with` block."""
    before, gpus.phase = gpus.phase, name
    try:
        yield
    finally:
        gpus.phase = before


def note_phases(gpus: VirtualGpus, model: nn.Module) -> None:
    """Let every DataParallel in a model note its steps from now on."""
    for module in model.modules():
        if isinstance(module, nn.DataParallel):
            for method, name in _STEPS.items():
                vars(module)[method] = _noting(gpus, name, getattr(module, method))


def _noting(gpus: VirtualGpus, name: Phase, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with phase(gpus, name):
            return genuine(*args, **kwargs)

    return call
