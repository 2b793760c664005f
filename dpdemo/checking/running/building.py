"""Building the user's model, and noting what goes wrong with DataParallel while that happens."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dpdemo.calls.seam import replaced
from dpdemo.checking.errors import find
from dpdemo.checking.evidence import Event, RaisedError
from dpdemo.checking.recording.drafts import raised
from dpdemo.checking.source import calling_place
from dpdemo.errors import UsageError, about
from dpdemo.models.user import make_model

SEED = 0


@dataclass
class Built:
    """A model and what came with it, or the exception that DataParallel had a part in."""

    model: nn.Module | None
    inputs: object = None
    rebuild: Callable[[], nn.Module] | None = None
    events: list[Event] = field(default_factory=list)
    raised: RaisedError | None = None


def build(given: object, name: str = "") -> Built:
    """Take a model as it is, or call the function that builds one.

    Args:
        given: the model, or the function.
        name: its name in messages; that of the function if empty.

    Raises:
        UsageError: if the function raises for reasons of its own, or returns no model.

    """
    if isinstance(given, nn.Module):
        return Built(given)
    events: list[Event] = []
    try:
        with watching_loads(events):
            model, inputs = _make(given, name)
    except UsageError as error:
        if error.__cause__ is not None and _is_dataparallels(error.__cause__):
            return Built(None, events=events, raised=raised("factory", error.__cause__))
        raise
    return Built(model, inputs, lambda: _make(given, name)[0], events)


def _make(factory: Any, name: str) -> tuple[nn.Module, Any]:
    torch.manual_seed(SEED)
    with about("model"):
        return make_model(factory, name or getattr(factory, "__qualname__", type(factory).__name__))


def _is_dataparallels(error: BaseException) -> bool:
    """Return whether DataParallel raised an exception, or its wrapper was taken for the model."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith("torch/nn/parallel/data_parallel.py"):
            return True
        trace = trace.tb_next
    text = f"{type(error).__name__}: {error}"
    return find(text, "", "") in {"DP101", "DP102"}


@contextlib.contextmanager
def watching_loads(events: list[Event]) -> Iterator[None]:
    """Note loads of a state_dict that match nothing, which `strict=False` passes over in silence."""

    def note(name: str, module: nn.Module, state_dict: Any) -> None:
        wanted, given = set(module.state_dict()), set(state_dict)
        if given and wanted and not wanted & given:
            prefix = "module."
            if {prefix + key for key in given} & wanted or {prefix + key for key in wanted} & given:
                events.append(Event(name, 0, next(iter(sorted(given))), calling_place()))

    def make(name: str, genuine: Callable[..., object]) -> Callable[..., object]:
        def load_state_dict(self: nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> object:
            with contextlib.suppress(Exception):  # a state_dict of the user's may be anything
                note(name, self, state_dict)
            return genuine(self, state_dict, *args, **kwargs)

        return load_state_dict

    with replaced(nn.Module, "load_state_dict", make):
        yield
