"""Building the user's model, and noting what goes wrong with DataParallel while that happens."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dpdemo.errors import DpdemoError, UsageError
from dpdemo.failure import user_frames
from dpdemo.preflight.evidence import Event, Raised, Scan
from dpdemo.preflight.places import calling_place
from dpdemo.preflight.recorder import raised
from dpdemo.preflight.watch import replaced

SEED = 0


@dataclass
class Built:
    """A model and what came with it, or the exception that DataParallel had a part in."""

    model: nn.Module | None
    inputs: Any = None
    rebuild: Callable[[], nn.Module] | None = None
    events: list[Event] = field(default_factory=list)
    raised: Raised | None = None


def build(given: Any) -> Built:
    """Take a model as it is, or call the function that builds one.

    Raises:
        UsageError: if the function raises for reasons of its own, or returns no model.

    """
    if isinstance(given, nn.Module):
        return Built(given)
    if not callable(given):
        raise UsageError(
            f"expected a torch.nn.Module or a function that builds one, got {type(given).__name__} - at "
            "`model`"
        )
    events: list[Event] = []
    try:
        with watching_loads(events):
            made = _call(given)
    except DpdemoError:
        raise
    except Exception as error:
        if _is_dataparallels(error):
            return Built(None, events=events, raised=raised("factory", error))
        raise UsageError(
            f"expected a model from `{_name(given)}`, got {type(error).__name__}: {error}{user_frames(error)}"
        ) from error
    model, inputs = _take_apart(made, given)
    return Built(model, inputs, lambda: _take_apart(_call(given), given)[0], events)


def _call(factory: Callable[[], Any]) -> Any:
    torch.manual_seed(SEED)
    return factory()


def _name(factory: Any) -> str:
    return getattr(factory, "__qualname__", type(factory).__name__)


def _take_apart(made: Any, factory: Any) -> tuple[nn.Module, Any]:
    model, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"expected a torch.nn.Module, or (model, inputs), from `{_name(factory)}`, "
            f"got {type(model).__name__}",
            hint="return the model itself",
        )
    return model, inputs


def _is_dataparallels(error: Exception) -> bool:
    """Whether DataParallel raised an exception, or its wrapper was taken for the model."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith("torch/nn/parallel/data_parallel.py"):
            return True
        trace = trace.tb_next
    text = str(error)
    return "'DataParallel' object has no attribute" in text or (
        "state_dict" in text and ('"module.' in text or ("Missing key" in text and "module." in text))
    )


@contextlib.contextmanager
def watching_loads(events: list[Event]) -> Iterator[None]:
    """Note loads of a state_dict that match nothing, which `strict=False` passes over in silence."""

    def make(name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
        def load_state_dict(module: nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            wanted, given = set(module.state_dict()), set(state_dict)
            if given and wanted and not wanted & given:
                prefix = "module."
                if {prefix + key for key in given} & wanted or {prefix + key for key in wanted} & given:
                    events.append(Event(name, 0, next(iter(sorted(given))), calling_place()))
            return genuine(module, state_dict, *args, **kwargs)

        return load_state_dict

    with replaced(nn.Module, "load_state_dict", make):
        yield


def no_scan() -> Scan:
    """Stand in for the scan of a model that could not be built."""
    return Scan("(not built)")
